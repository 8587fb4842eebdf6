//! A sender that comes late, when others hold the whole bank and send without end.

use super::fan_in::{Scheme, Star};

/// Epochs after which it has half of its share: two in which it asks and is given what others do not
/// have under way, and one for what they have.
const LATE: u32 = 3;

/// Credits that each of the others has before, fewer than it needs not to stall.
const EACH: u32 = 32;

/// So many hold the whole bank when another begins.
fn comes_late(others: u32) {
    let scheme = Scheme::moving(others * EACH);
    let mut star = Star::new(scheme, others + 1);
    let beyond = |star: &Star, from| star.lender.held(from) - scheme.limits.least;
    (0..others).for_each(|from| star.floods(from));
    star.goes_on(16, others);
    let held = (0..others).map(|from| beyond(&star, from)).sum::<u32>();
    assert_eq!(held, scheme.banked, "the others hold the whole bank");

    star.floods(others);
    let share = scheme.banked / (others + 1);
    let after = (1..=10 * LATE).find(|_| {
        star.goes_on(1, others);
        2 * beyond(&star, others) >= share
    });
    let epochs = after.unwrap_or(u32::MAX);
    println!("beside {others}: half of {share} after {epochs} epochs of {}", star.lender.epoch());
    assert!(epochs <= LATE, "beside {others}: half of {share} after {epochs} epochs");

    // And it stays so, for all, and nothing moves any more.
    star.goes_on(16, others);
    let system = star.outcome.system;
    let (served, all) = star.goes_on(16, others);
    let fair = all / (others + 1);
    assert!(2 * served >= fair, "beside {others}: {served} requests, {fair} would be fair");
    for from in 0..=others {
        let held = beyond(&star, from);
        assert!(2 * held >= share, "{from} beside {others}: {held} of {share}");
    }
    assert_eq!(star.outcome.system, system, "beside {others}: credits still move");
    assert_eq!(star.lender.total(), scheme.banked);
}

/// It gets its share, and nobody starves for it.
#[test]
fn who_comes_late_gets_its_share() {
    [1, 8, 63].into_iter().for_each(comes_late);
}
