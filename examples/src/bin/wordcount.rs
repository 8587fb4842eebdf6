//! Counts the words of text files on all ranks.
//!
//! Each rank reads an equal share of the bytes and counts its words. Every word has an owner among
//! the ranks, found by a hash; the counts travel to the owners in batches as Medium requests, each
//! confirmed by a Short reply. Then every rank puts its most frequent words into rank 0's segment,
//! and after a barrier rank 0 merges and prints them.
//!
//! A word is what `tr -cs '[:alpha:]' '\n' | tr A-Z a-z` prints in the C locale.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::Parser;
use gasnet_ibv::{
    BarrierFlags, Client, Entry, Error, Flags, HandlerIndex, Rank, Role, Segment, Seq,
};
use gasnet_ibv_examples::words::{self, Counts};

/// Counts the words of text files on all ranks of a job.
#[derive(Debug, Parser)]
#[command(name = "wordcount")]
struct Args {
    /// Print the K most frequent words
    #[arg(short = 'k', default_value_t = 10, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    most: u32,
    /// Regular files to read
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Why a rank gives up.
#[derive(Debug)]
enum Failure {
    Conduit(Error),
    Other(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Conduit(error)
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

fn main() -> Result<(), Error> {
    let client = Client::<Seq>::init("wordcount")?;
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // All ranks see the same mistake; one speaks.
            if client.rank() == Rank(0) {
                let _ = error.print();
            }
            client.exit(error.exit_code())
        }
    };
    match run(&client, &args) {
        Ok(()) => client.exit(0),
        Err(failure) => {
            let text = match failure {
                Failure::Conduit(error) => error.to_string(),
                Failure::Other(text) => text,
            };
            let line = format!("wordcount: rank {}: {text}\n", client.rank());
            let _ = std::io::stderr().write_all(line.as_bytes());
            client.exit(1)
        }
    }
}

fn run(client: &Client<Seq>, args: &Args) -> Result<(), Failure> {
    let region = region_len(args.most);
    // Only rank 0's segment is used, but every rank has to attach one.
    let len = if client.rank() == Rank(0) { region * u64::from(client.size()) } else { region };
    let segment = client.attach_segment(len)?;
    let owned = Owned::register(client)?;
    client.barrier(0, BarrierFlags::ANONYMOUS)?;

    let begin = Instant::now();
    let (counts, bytes) = count_share(client, &args.files)?;
    owned.distribute(client, counts)?;
    let summary = owned.summary(bytes, args.most)?;
    let place = region * u64::from(client.rank().0);
    let space = usize::try_from(region).map_err(|error| error.to_string())?;
    if summary.len() > space {
        let (need, most) = (summary.len(), args.most);
        return Err(format!(
            "the {most} most frequent words take {need} bytes, {space} are there; use a smaller -k"
        )
        .into());
    }
    client.put(Rank(0), place, &summary)?;
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    if client.rank() == Rank(0) {
        let text = merge(client, &segment, args, begin)?;
        // A reader that has gone away is no failure of the count.
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
    Ok(())
}

/// Bytes of each rank's place in rank 0's segment, whole pages.
fn region_len(most: u32) -> u64 {
    (u64::from(most) * 64 + 16_384).next_multiple_of(65_536)
}

/// Counts the words of this rank's share; also returns how many bytes that is.
fn count_share(client: &Client<Seq>, files: &[PathBuf]) -> Result<(Counts, u64), Failure> {
    let lengths = words::lengths(files)?;
    let mut counts = Counts::new();
    let mut bytes = 0;
    for piece in words::share(&lengths, client.rank().0, client.size()) {
        let path = &files[piece.file];
        let text = words::read_piece(path, &piece)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        words::count(&text, &mut counts);
        bytes += piece.end - piece.start;
    }
    Ok((counts, bytes))
}

/// The words that this rank owns, filled by handlers.
struct Owned {
    counts: Arc<Mutex<Counts>>,
    damaged: Arc<AtomicU64>,
    confirmed: Arc<AtomicU64>,
    batch: HandlerIndex,
}

impl Owned {
    fn register(client: &Client<Seq>) -> Result<Self, Failure> {
        let counts = Arc::new(Mutex::new(Counts::new()));
        let (damaged, confirmed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let seen = Arc::clone(&confirmed);
        let mut confirm = [Entry::short("confirm", 0, move |_, _| {
            seen.fetch_add(1, Ordering::Release);
        })
        .role(Role::Reply)];
        client.endpoint().register(&mut confirm)?;
        let confirm = confirm[0].index();

        let (into, bad) = (Arc::clone(&counts), Arc::clone(&damaged));
        let mut batch = [Entry::medium("batch", 0, move |token, payload: &mut [u8], _| {
            add_batch(payload, &into, &bad);
            if token.reply_short(confirm, &[], Flags::NONE).is_err() {
                bad.fetch_add(1, Ordering::Relaxed);
            }
        })
        .role(Role::Request)];
        client.endpoint().register(&mut batch)?;
        Ok(Self { counts, damaged, confirmed, batch: batch[0].index() })
    }

    /// Sends every count to the word's owner and waits until all batches are confirmed. Other
    /// ranks' batches may still come after that, until the next barrier.
    fn distribute(&self, client: &Client<Seq>, counts: Counts) -> Result<(), Failure> {
        let (size, most) = (client.size(), client.team().max_request_medium(None, 0, Flags::NONE));
        let mut batches = vec![Vec::new(); size as usize];
        let mut sent = 0;
        let mut send = |rank: u32, batch: &mut Vec<u8>| -> Result<(), Error> {
            let team = client.team();
            let _sent = team.request_medium(Rank(rank), self.batch, batch, &[], Flags::NONE)?;
            batch.clear();
            sent += 1;
            Ok(())
        };
        for (word, count) in counts {
            let rank = words::owner(&word, size);
            let need = words::encoded_len(&word);
            if need > most {
                let len = word.len();
                return Err(format!(
                    "a word of {len} letters does not fit in a message of {most} bytes"
                )
                .into());
            }
            let batch = &mut batches[rank as usize];
            if batch.len() + need > most {
                send(rank, batch)?;
            }
            words::encode(batch, &word, count);
        }
        for (rank, batch) in (0..size).zip(&mut batches) {
            if !batch.is_empty() {
                send(rank, batch)?;
            }
        }
        client.block_until(|| self.confirmed.load(Ordering::Acquire) == sent)?;
        // Every batch of every rank is confirmed when all ranks have passed this point.
        client.barrier(0, BarrierFlags::ANONYMOUS)?;
        Ok(())
    }

    /// What rank 0 needs from this rank: length of the rest, bytes read, words, distinct words, the
    /// top words.
    fn summary(&self, bytes: u64, most: u32) -> Result<Vec<u8>, Failure> {
        let damaged = self.damaged.load(Ordering::Relaxed);
        if damaged > 0 {
            return Err(format!("{damaged} batches were damaged").into());
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let (total, distinct) = (counts.values().sum::<u64>(), counts.len() as u64);
        let mut records = Vec::new();
        for (word, count) in words::top(counts.drain(), most as usize) {
            words::encode(&mut records, &word, count);
        }
        let head = [records.len() as u64, bytes, total, distinct];
        let mut out: Vec<u8> = head.into_iter().flat_map(u64::to_le_bytes).collect();
        out.extend_from_slice(&records);
        Ok(out)
    }
}

fn add_batch(mut payload: &[u8], into: &Mutex<Counts>, damaged: &AtomicU64) {
    let mut counts = into.lock().unwrap_or_else(PoisonError::into_inner);
    while !payload.is_empty() {
        let Some((word, count)) = words::decode(&mut payload) else {
            damaged.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if let Some(known) = counts.get_mut(word) {
            *known += count;
        } else {
            counts.insert(word.to_owned(), count);
        }
    }
}

/// Reads what the ranks have put, merges it, and makes the text of the result.
fn merge(
    client: &Client<Seq>,
    segment: &Segment,
    args: &Args,
    begin: Instant,
) -> Result<String, Failure> {
    let region = region_len(args.most);
    let (mut bytes, mut total, mut distinct) = (0, 0, 0);
    let mut all = Vec::new();
    for rank in 0..u64::from(client.size()) {
        let mut head = [0; 32];
        segment.read(rank * region, &mut head)?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at * 8 + byte]));
        (bytes, total, distinct) = (bytes + word(1), total + word(2), distinct + word(3));
        let len = usize::try_from(word(0).min(region - 32)).map_err(|error| error.to_string())?;
        let mut records = vec![0; len];
        segment.read(rank * region + 32, &mut records)?;
        let mut rest = records.as_slice();
        while let Some((word, count)) = words::decode(&mut rest) {
            all.push((word.to_owned(), count));
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let mut text = format!("{:>12}  word\n", "count");
    for (word, count) in words::top(all, args.most as usize) {
        text.push_str(&format!("{count:>12}  {}\n", String::from_utf8_lossy(&word)));
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = bytes as f64 / 1e6 / seconds;
    let (files, ranks) = (args.files.len(), client.size());
    text.push_str(&format!(
        "{total} words, {distinct} distinct, {bytes} bytes of {files} files on {ranks} ranks: {seconds:.3} s, {rate:.1} MB/s\n"
    ));
    Ok(text)
}
