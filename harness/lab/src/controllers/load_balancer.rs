//! Services of type `LoadBalancer` get their addresses ([`load_balancer`]).

use chainbreak_engine::load_balancer;

use super::{
    view::View,
    write::{Verb, Writes},
};

/// Sees to all services.
pub(super) fn reconcile(view: &View<'_>, writes: &mut Writes) {
    let changed = load_balancer::reconcile(view.seen.services.iter());
    for service in changed {
        writes.push(Verb::Status, service);
    }
}
