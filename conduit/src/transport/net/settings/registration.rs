//! How much memory outside segments may be registered: `GASNET_USE_FIREHOSE` and its family.

use fabric::Caps;
use settings::Values;

use super::Error;
use crate::sys;
use crate::transport::net::memory::regions::Limits;

const MIB: u64 = 1 << 20;
/// Bounds of the default budget.
const BYTES: (u64, u64) = (16 * MIB, 1024 * MIB);
/// Most regions unless the user says otherwise: a table of less than half a megabyte.
const REGIONS: u64 = 4096;
/// Bytes of the largest region that may be asked for.
const MOST_BLOCK: u64 = 16 * MIB;
/// Regions of a device that does not say how many it has.
const UNTOLD_REGIONS: u32 = 1 << 24;
const REGIONS_MAX: &str = "GASNET_PINNED_REGIONS_MAX";

/// Paging on demand: `GASNET_USE_ODP`, `GASNET_ODP_VERBOSE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paging {
    pub on: bool,
    /// 0 says nothing, 1 how many ranks lack it, 2 also which, 3 each of them with its adapters.
    pub verbose: u32,
    /// The user set either, so that a lack is worth a line without being asked for details.
    pub is_set: bool,
}

impl Paging {
    pub(super) fn of(table: &Values) -> Self {
        let (on, verbose) = ("GASNET_USE_ODP", "GASNET_ODP_VERBOSE");
        Self {
            on: table.bool(on),
            verbose: u32::try_from(table.int(verbose)).unwrap_or(u32::MAX),
            is_set: table.is_set(on) || table.is_set(verbose),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Registration {
    /// `GASNET_USE_FIREHOSE`.
    pub on: bool,
    /// `GASNET_FIREHOSE_MAXVICTIM_M`.
    pub bytes: Option<u64>,
    /// `GASNET_FIREHOSE_MAXVICTIM_R`.
    pub regions: Option<u64>,
    /// Memory is lent to other ranks: the mode is not FAST.
    pub lends: bool,
    /// `GASNET_FIREHOSE_M`.
    pub lent_bytes: Option<u64>,
    /// `GASNET_FIREHOSE_R`.
    pub lent_regions: Option<u64>,
    /// `GASNET_FIREHOSE_MAXREGION_SIZE`; 0 chooses.
    pub block: u64,
    /// `GASNET_FIREHOSE_VERBOSE`.
    pub verbose: bool,
    /// `GASNET_PINNED_REGIONS_MAX`.
    pub pinned_regions: Option<f64>,
    /// Ranks of this host, which share its memory.
    pub locals: u32,
}

impl Registration {
    pub(super) fn of(table: &Values) -> Self {
        let bytes = |name| table.is_set(name).then(|| table.size(name));
        let regions = |name| table.int_opt(name).and_then(|count| u64::try_from(count).ok());
        Self {
            on: table.bool("GASNET_USE_FIREHOSE"),
            bytes: bytes("GASNET_FIREHOSE_MAXVICTIM_M"),
            regions: regions("GASNET_FIREHOSE_MAXVICTIM_R"),
            lends: false,
            lent_bytes: bytes("GASNET_FIREHOSE_M"),
            lent_regions: regions("GASNET_FIREHOSE_R"),
            block: table.size("GASNET_FIREHOSE_MAXREGION_SIZE"),
            verbose: table.bool("GASNET_FIREHOSE_VERBOSE"),
            pinned_regions: table.real(REGIONS_MAX),
            locals: 1,
        }
    }

    /// What a rank may register on devices that can do so much: for itself, and for other ranks.
    pub(crate) fn limits<'a>(
        &self,
        caps: impl Iterator<Item = &'a Caps>,
    ) -> Result<[Limits; 2], Error> {
        let told = |caps: &Caps| match caps.max_mr {
            0 | 0x7fff_ffff.. => UNTOLD_REGIONS,
            count => count,
        };
        let most = caps.map(told).min().unwrap_or(UNTOLD_REGIONS);
        self.limits_of(sys::physical_memory().unwrap_or(0), sys::page_size(), most)
    }

    fn limits_of(&self, physical: u64, page: u64, device: u32) -> Result<[Limits; 2], Error> {
        let locals = u64::from(self.locals.max(1));
        let budget = |bytes: Option<u64>| {
            bytes.unwrap_or_else(|| (physical / 8 / locals).clamp(BYTES.0, BYTES.1))
        };
        // Where memory is lent, half of the regions is for that.
        let share = self.pinned(device)? / locals / if self.lends { 2 } else { 1 };
        let asked = |regions: Option<u64>| regions.unwrap_or(REGIONS).min(share.max(1));
        let block = match self.block {
            0 => {
                let each = budget(self.bytes).div_ceil(asked(self.regions).max(1));
                each.checked_next_power_of_two().unwrap_or(MOST_BLOCK)
            }
            block => 1 << block.ilog2(),
        };
        let block = block.clamp(page, MOST_BLOCK);
        let limits = |bytes: Option<u64>, regions: Option<u64>, on: bool| {
            let (asked, bytes) = (asked(regions), budget(bytes));
            // Small regions use up the count before the bytes, at the latest when each is a page.
            let count = if regions.is_some() { asked } else { asked.min(bytes / block + 1) };
            let regions = if on { u32::try_from(count).unwrap_or(u32::MAX) } else { 0 };
            Limits { page, block, bytes: bytes.max(page), regions }
        };
        Ok([
            limits(self.bytes, self.regions, self.on),
            limits(self.lent_bytes, self.lent_regions, self.on && self.lends),
        ])
    }

    /// Regions of all ranks of a host.
    fn pinned(&self, device: u32) -> Result<u64, Error> {
        let device = u64::from(device);
        let Some(asked) = self.pinned_regions else { return Ok(device / 4) };
        let (least, most) = (16, device - device / 20);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "not negative, and a count; a part of one need not be exact"
        )]
        let count = if asked < 1.0 { (asked * device as f64) as u64 } else { asked as u64 };
        if (least..=most).contains(&count) {
            return Ok(count);
        }
        let problem = format!(
            "{asked} means {count} regions, and the adapter has {device}: it must be from {least} to {most}"
        );
        Err(Error::Variable { name: REGIONS_MAX, problem })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Registration = Registration {
        on: true,
        bytes: None,
        regions: None,
        block: 128 << 10,
        verbose: false,
        pinned_regions: None,
        locals: 1,
        lends: false,
        lent_bytes: None,
        lent_regions: None,
    };

    fn limits(settings: Registration, physical: u64) -> Limits {
        settings.limits_of(physical, 4096, 1 << 16).unwrap()[0]
    }

    #[test]
    fn what_is_lent_has_a_budget_of_its_own() {
        let lent = |settings: Registration| settings.limits_of(4 << 30, 4096, 1 << 16).unwrap()[1];
        assert_eq!(lent(PLAIN).regions, 0, "in FAST nothing is lent");
        let all = Registration { lends: true, ..PLAIN };
        assert_eq!((lent(all).bytes, lent(all).regions), (512 * MIB, 4096));
        let few = Registration { lent_bytes: Some(MIB), lent_regions: Some(2), ..all };
        assert_eq!((lent(few).bytes, lent(few).regions), (MIB, 2));
        assert_eq!(lent(Registration { lent_bytes: Some(MIB), ..all }).regions, 9);
        assert_eq!(lent(Registration { lent_regions: Some(0), ..all }).regions, 0);
        assert_eq!(lent(Registration { on: false, ..all }).regions, 0);
        assert_eq!(limits(few, 4 << 30), limits(PLAIN, 4 << 30), "the own budget is as before");
    }

    #[test]
    fn the_budget_follows_the_memory_and_the_ranks() {
        let gib = 1 << 30;
        assert_eq!(limits(PLAIN, 4 * gib).bytes, gib / 2);
        assert_eq!(limits(PLAIN, 400 * gib).bytes, gib);
        assert_eq!(limits(Registration { locals: 64, ..PLAIN }, gib).bytes, 16 * MIB);
        assert_eq!(limits(PLAIN, 4 * gib).regions, 4096);
        assert_eq!(limits(Registration { locals: 64, ..PLAIN }, gib).regions, 129);
        assert_eq!(limits(Registration { on: false, ..PLAIN }, gib).regions, 0);
        let few = Registration { regions: Some(100), bytes: Some(40 * MIB), ..PLAIN };
        assert_eq!(limits(few, gib).regions, 100);
        assert_eq!(limits(few, gib).bytes, 40 * MIB);
    }

    #[test]
    fn a_region_is_a_power_of_two_and_not_less_than_a_page() {
        let block = |block| limits(Registration { block, ..PLAIN }, 1 << 33).block;
        assert_eq!(block(100), 4096);
        assert_eq!(block(200 << 10), 128 << 10);
        assert_eq!(block(1 << 40), 16 * MIB);
        let fitted = Registration { block: 0, regions: Some(100), bytes: Some(MIB * 90), ..PLAIN };
        assert_eq!(limits(fitted, 1 << 33).block, MIB);
    }

    #[test]
    fn regions_of_a_host_are_a_part_or_a_number() {
        let pinned = |asked| Registration { pinned_regions: asked, ..PLAIN }.pinned(1000);
        assert_eq!(pinned(None).unwrap(), 250);
        assert_eq!(pinned(Some(0.5)).unwrap(), 500);
        assert_eq!(pinned(Some(16.0)).unwrap(), 16);
        for wrong in [0.0, 0.001, 3.0, 951.0, f64::INFINITY] {
            let text = pinned(Some(wrong)).unwrap_err().to_string();
            assert!(text.contains(REGIONS_MAX) && text.contains("950"), "{text}");
        }
        let shared = Registration { pinned_regions: Some(640.0), locals: 64, ..PLAIN };
        assert_eq!(shared.limits_of(1 << 40, 4096, 1000).unwrap()[0].regions, 10);
    }
}
