//! What both PMI wires are made of, for either side: `key=value` lists, and the length in front of a
//! PMI-2 message. Fields are read by key, never by position: servers differ in the order.

/// Generation of the PMI wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PmiVersion {
    /// Lines of words.
    One,
    /// Messages with their length in front.
    Two,
}

impl PmiVersion {
    /// For people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::One => "PMI-1",
            Self::Two => "PMI-2",
        }
    }

    /// What stands between the fields of a message.
    pub(crate) const fn separator(self) -> char {
        match self {
            Self::One => ' ',
            Self::Two => ';',
        }
    }

    /// A message as it is sent.
    pub(crate) fn message(self, body: &str) -> String {
        match self {
            Self::One => format!("{body}\n"),
            Self::Two => frame(body),
        }
    }
}

/// The key of the map of hosts, which MPI programs find shared memory by.
pub(crate) const PROCESS_MAPPING: &str = "PMI_process_mapping";

/// Longest message that either side may send; more is nonsense.
pub(crate) const MAX_MESSAGE: usize = 64 * 1024;

/// The fields of one message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    pairs: Vec<(String, String)>,
}

impl Fields {
    /// Reads a message whose fields stand between `separator`s. Words without `=` are skipped.
    pub(crate) fn parse(text: &str, separator: char) -> Result<Self, String> {
        let mut fields = Self::default();
        for word in text.trim_end_matches(['\n', '\r']).split(separator) {
            let Some((key, value)) = word.split_once('=') else { continue };
            match fields.get(key) {
                Some(known) if known != value => return Err(format!("{key} is there twice")),
                Some(_) => {}
                None => fields.pairs.push((key.trim().to_owned(), value.to_owned())),
            }
        }
        if fields.get("cmd").is_none() {
            return Err("no command".to_owned());
        }
        Ok(fields)
    }

    /// Value of a field.
    #[must_use]
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Value of a field that must be there.
    pub(crate) fn need(&self, key: &str) -> Result<&str, String> {
        self.get(key).ok_or_else(|| format!("no {key}"))
    }

    /// As [`Fields::need`], a number.
    pub(crate) fn number(&self, key: &str) -> Result<i64, String> {
        let text = self.need(key)?;
        text.trim().parse().map_err(|_| format!("{key}={text:?} is no number"))
    }

    /// Fails unless the message is the answer `cmd`.
    #[cfg(feature = "client")]
    pub(crate) fn expect(&self, cmd: &str) -> Result<(), String> {
        let seen = self.need("cmd")?;
        if seen == cmd { Ok(()) } else { Err(format!("{seen:?} instead of {cmd:?}")) }
    }

    /// Why the server refused, if it did: a result code other than 0.
    #[cfg(feature = "client")]
    pub(crate) fn refusal(&self) -> Result<Option<String>, String> {
        if self.get("rc").is_none() || self.number("rc")? == 0 {
            return Ok(None);
        }
        let code = self.need("rc")?;
        let words = self.get("errmsg").or_else(|| self.get("msg")).unwrap_or("no reason given");
        Ok(Some(format!("{words} (rc={code})")))
    }
}

/// Reads the 6 columns in front of a PMI-2 message: the length of what follows. Servers fill up on
/// either side.
pub(crate) fn frame_length(columns: &[u8; 6]) -> Result<usize, String> {
    let text = std::str::from_utf8(columns).map_err(|_| "its length is no text".to_owned())?;
    let digits = text.trim();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("its length is {text:?}"));
    }
    let length: usize = digits.parse().map_err(|_| format!("its length is {text:?}"))?;
    if length > MAX_MESSAGE {
        return Err(format!("{length} bytes announced, at most {MAX_MESSAGE}"));
    }
    Ok(length)
}

/// A PMI-2 message on the wire.
#[must_use]
pub(crate) fn frame(body: &str) -> String {
    format!("{:6}{body}", body.len())
}
