//! The software adapter: `GASNET_IBV_SOFT_*`.

use std::net::IpAddr;

/// Whether all that it sends is encrypted.
pub(crate) const SOFT_SECURE: &str = "GASNET_IBV_SOFT_SECURE";

/// The software adapter: `GASNET_IBV_SOFT_*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SoftSettings {
    /// Devices, 1 to 8.
    pub devices: u8,
    /// Where it listens; `None` chooses.
    pub address: Option<SoftAddress>,
    /// `GASNETRUN_ADDRESS`: what the launcher's login came to.
    pub reached: Option<IpAddr>,
    /// Whether all that it sends is encrypted.
    pub secure: bool,
    /// Script of faults, for tests.
    pub faults: Option<String>,
}

/// `GASNET_IBV_SOFT_ADDRESS`: an address, or a network as `address/bits`. A single address is a
/// network of all its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SoftAddress {
    pub ip: IpAddr,
    /// Leading bits that count.
    pub bits: u8,
}

impl SoftAddress {
    /// Understands `10.1.2.3`, `10.1.2.0/24`, `fd00::/8`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (ip, bits) = match text.trim().split_once('/') {
            Some((ip, bits)) => (ip, Some(bits)),
            None => (text.trim(), None),
        };
        let wrong = |what: &str| {
            format!(
                "{what:?} in {text:?}; expected an address such as 10.1.2.3 or fd00::1, or a network such as 10.1.2.0/24"
            )
        };
        let ip: IpAddr = ip.parse().map_err(|_| wrong(ip))?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(text) => {
                text.parse().ok().filter(|bits| *bits <= most).ok_or_else(|| wrong(text))?
            }
        };
        Ok(Self { ip, bits })
    }

    /// Whether an address of this host is meant.
    pub(crate) fn covers(self, other: IpAddr) -> bool {
        let number = |ip| match ip {
            IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
            IpAddr::V6(v6) => u128::from(v6),
        };
        let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
        self.ip.is_ipv4() == other.is_ipv4() && (number(self.ip) ^ number(other)) & mask == 0
    }
}
