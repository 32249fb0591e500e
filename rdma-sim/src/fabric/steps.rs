//! What is next: the events that are due at one instant, and which hosts each may change

use super::event::Event;
use super::queue_pairs::QueuePairs;
use super::schedule::Schedule;
use super::world::World;
use crate::Choices;
use crate::choices::Step;

/// The events that are due now, as steps; of several faults the first of the plan
pub(crate) fn due(schedule: &Schedule<Event>, world: &World, qps: &QueuePairs) -> Vec<Step> {
    let mut has_fault = false;
    let is_next = |event: &&Event| !(is_fault(event) && std::mem::replace(&mut has_fault, true));
    let due = schedule.due().filter(is_next);
    due.map(|event| Step { id: event.id(), hosts: hosts_of(event, world, qps) }).collect()
}

/// The hosts that an event may change, a bit for each
fn hosts_of(event: &Event, world: &World, qps: &QueuePairs) -> u64 {
    let of_device = |device| {
        let neighbour = world.neighbour(device).map_or(0, |device| world.host_bit(device));
        world.host_bit(device) | neighbour
    };
    match *event {
        Event::Boot(_) | Event::Calm | Event::Fault(_) | Event::Replug(_) => u64::MAX,
        Event::Credit(qp)
        | Event::Delivered(qp)
        | Event::Doorbell(qp)
        | Event::OneSided(qp)
        | Event::Retry(qp)
        | Event::Sent(qp) => qps.get(qp.key).map_or(0, |found| of_device(found.device)),
        Event::Free(link) => {
            world.ends(link).map_or(u64::MAX, |[here, there]| world.host_bit(here) | world.host_bit(there))
        }
    }
}

/// Takes the event that is due now and has this id
pub(super) fn take(schedule: &mut Schedule<Event>, id: u64) -> Option<Event> {
    schedule.take_due(|event| event.id() == id)
}

/// Takes the next event that is due: the first, or any of those that are due at one instant
#[inline(always)]
pub(super) fn next(
    schedule: &mut Schedule<Event>,
    explores: bool,
    choices: &mut dyn Choices,
) -> Option<Event> {
    // An event comes from one place: one that may come from another is copied on its way, and processors wait for that.
    if explores {
        schedule.pick_next(|ties| order(ties, choices));
    }
    schedule.pop()
}

/// Whether the event is one of the plan, or ends all of the plan
fn is_fault(event: &&Event) -> bool {
    matches!(event, Event::Calm | Event::Fault(_))
}

/// Which of several events that are due at one instant is next
fn order(ties: &[&Event], choices: &mut dyn Choices) -> usize {
    let picked = choices.pick(ties.len() as u32) as usize;
    // Faults of one instant keep the order of the plan.
    if is_fault(&ties[picked]) { ties.iter().position(is_fault).unwrap_or(picked) } else { picked }
}
