//! Any bytes as what an encrypted connection carries: nothing opens without the key, and of what has
//! it only what the peer sent next.
//!
//! The first bytes of an input say how long the texts of the records are, and what somebody between
//! both hosts does with the stream: 0: nothing, 1: a changed bit, 2: a cut, 3: a record twice, 4: one
//! left out, 5: two that change places; and where. The rest is the text.

use std::hash::{DefaultHasher, Hasher as _};

use fabric::soft::testing::record::{HEAD, Opener, Sealer, Secrets, TAG};
use fabric::soft::testing::sealed_datagram::{DatagramCipher, SEALED};

/// One input.
pub(crate) fn run(bytes: &[u8]) {
    // Another key for each input: the fuzzer sees what is compared, and would copy the check of a
    // key that stays.
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    let key = u128::from(hasher.finish()).to_le_bytes();
    let secrets = Secrets::derive(&key, &[1; 16], &[2; 16]);
    let mut opener = Opener::new(&secrets.requests);
    let judged = opener.open(&mut bytes.to_vec());
    assert_eq!(judged.is_err(), bytes.len() >= HEAD);
    assert!(!matches!(judged, Ok(Some(_))));
    let cipher = DatagramCipher::new(&key, [3; 16]);
    assert!(cipher.open(&mut bytes.to_vec()).is_none());
    let Some((&[each, what, at, bit], text)) = bytes.split_first_chunk::<4>() else { return };
    datagram(&cipher, text, (at.into(), bit));
    let texts: Vec<&[u8]> = text.chunks(usize::from(each) + 1).collect();
    stream(&secrets, &texts, (what % 6, at.into(), bit));
}

/// A datagram comes back as it was, and with one bit changed not at all.
fn datagram(cipher: &DatagramCipher, packet: &[u8], (at, bit): (usize, u8)) {
    let mut room = [0; SEALED];
    let Some(sealed) = cipher.seal(packet, &mut room) else { return };
    let mut changed = sealed.to_vec();
    assert_eq!(cipher.open(&mut sealed.to_vec()), Some(packet));
    let at = at * 7919 % changed.len();
    changed[at] ^= 1 << (bit % 8);
    assert!(cipher.open(&mut changed).is_none());
}

/// A reader gets the records before the first that is not the next one of the peer, whole.
fn stream(secrets: &Secrets, texts: &[&[u8]], how: (u8, usize, u8)) {
    if texts.is_empty() {
        return;
    }
    let mut sealer = Sealer::new(&secrets.responses);
    let seal = |text: &&[u8]| {
        let mut record = Vec::new();
        let fill = |place: &mut [u8]| {
            place.copy_from_slice(text);
            true
        };
        sealer.seal(text.len(), &mut record, fill).expect("a possible record");
        record
    };
    let mut records: Vec<_> = texts.iter().map(seal).collect();
    let (good, wrong) = tamper(&mut records, how);
    let read = read(&mut Opener::new(&secrets.responses), records.concat());
    assert_eq!(read, (texts[..good].concat(), wrong));
}

/// What somebody does: how many records come before the first wrong one, and whether it shows.
fn tamper(records: &mut Vec<Vec<u8>>, (what, at, bit): (u8, usize, u8)) -> (usize, bool) {
    let (count, one) = (records.len(), at % records.len());
    let len = records[one].len();
    match what {
        1 => {
            records[one][at * 7919 % len] ^= 1 << (bit % 8);
            (one, true)
        }
        2 => {
            records[one].truncate(usize::from(bit) % len);
            records.truncate(one + 1);
            (one, false)
        }
        3 => {
            records.insert(one, records[one].clone());
            (one + 1, true)
        }
        4 => {
            records.remove(one);
            (one, one + 1 < count)
        }
        5 if one + 1 < count => {
            records.swap(one, one + 1);
            (one, true)
        }
        _ => (count, false),
    }
}

/// The text that comes out of a stream, and whether it ended with a record that did not open.
fn read(opener: &mut Opener, mut raw: Vec<u8>) -> (Vec<u8>, bool) {
    let mut text = Vec::new();
    loop {
        match opener.open(&mut raw) {
            Ok(None) => return (text, false),
            Ok(Some(len)) => {
                text.extend_from_slice(&raw[HEAD..HEAD + len]);
                raw.drain(..HEAD + len + TAG);
            }
            Err(_) => return (text, true),
        }
    }
}
