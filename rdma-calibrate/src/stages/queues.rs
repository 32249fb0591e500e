//! The capacity of queues, its unit, and the depth that they report

use std::sync::Arc;

use rdma_core::{Device, FRAME};

use super::limits::confirm;
use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::station::Station;

/// Depths to ask for: each of the known ways to grant answers some of them otherwise.
const ASKED: [u32; 4] = [1, 64, 2000, 4095];

/// Behind the memory of sends, so that receives do not lie in it
const BEGINNING: usize = FRAME;

pub(super) async fn run(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let max = lab.device.caps().max_queue_frames;
    let asked = ASKED.map(|frames| frames.min(max));
    let mut reported = Vec::new();
    for frames in asked {
        reported.push((frames, station(lab, frames, 1 << 14).await?.capacity().recv_frames));
    }
    let ones = accepted(lab, asked[1], 1).await?;
    let overflows = ones > max;
    lab.findings.decide("rules.ring_overflow", if overflows { "corrupts" } else { "refused" });

    // Receives of two frames show the unit; where nothing is refused, a receive that is longer than the whole queue does.
    let longest = (lab.device.caps().max_message as usize / FRAME) as u32;
    let (mut grants, mut more) = (Vec::new(), Vec::new());
    if overflows {
        let most = longest.min(max);
        let mut is_counted_in_frames = false;
        for frames in asked {
            let fits = longest_accepted(lab, frames, most).await?;
            is_counted_in_frames |= fits < most;
            // The longest message of the device shows only that a queue accepts as much.
            if fits < most || most == max { grants.push((frames, fits)) } else { more.push((frames, fits)) }
        }
        if !is_counted_in_frames {
            more.append(&mut grants);
            let why = "no receive is refused, however many are posted and however long they are";
            lab.findings.leave("rules.queue_unit", why);
        } else {
            lab.findings.decide("rules.queue_unit", "frames");
        }
    } else {
        for frames in asked {
            let fits = if frames == asked[1] { ones } else { accepted(lab, frames, 1).await? };
            grants.push((frames, fits));
        }
        if longest < 2 {
            lab.findings.leave("rules.queue_unit", "a message of the device is one frame");
        } else {
            let twos = accepted(lab, asked[1], 2).await?;
            lab.findings.decide("rules.queue_unit", if twos == ones { "requests" } else { "frames" });
        }
    }
    longest_message(lab, grants.iter().chain(&more).copied()).await?;
    match grant(&grants, &more, max) {
        Some(grant) => lab.findings.decide("rules.queue_grant", grant),
        None if grants.is_empty() => lab.findings.leave("rules.queue_grant", "no receive is refused"),
        None => lab.findings.leave("rules.queue_grant", &format!("no known way to grant: {grants:?}")),
    }
    match read_back(&reported, &grants, max) {
        Some(word) => lab.findings.decide("rules.queue_read_back", word),
        None => lab.findings.leave("rules.queue_read_back", &format!("no known way to report: {reported:?}")),
    }
    Ok(())
}

/// A queue pair that accepts receives, with no sends coming
async fn station(lab: &mut Lab<'_>, frames: u32, len: usize) -> Result<Station, CalibrateError> {
    lab.keep_alive().await?;
    let is_early = lab.findings.profile.value("rules.early_receives").as_deref() == Some("from-init");
    if is_early {
        return Ok(Station::new(&lab.runtime, &lab.device, frames, len)?);
    }
    let device = Arc::clone(&lab.device);
    // The peer keeps a small one.
    let (_, peer) = lab.half_pair(&device, 1, 1 << 14).await?;
    let station = Station::new(&lab.runtime, &lab.device, frames, len)?;
    station.connect(&peer)?;
    Ok(station)
}

/// The number of receives of `size` frames that are accepted; one more than the device's limit if none is refused
async fn accepted(lab: &mut Lab<'_>, frames: u32, size: u32) -> Result<u32, CalibrateError> {
    let most = lab.device.caps().max_queue_frames + 1;
    let len = (size as usize - 1) * FRAME + 1;
    let mut station = station(lab, frames, BEGINNING + most as usize * len).await?;
    let mut count = 0;
    while count < most {
        let start = BEGINNING + count as usize * len;
        if station.recv(start..start + len).is_err() {
            break;
        }
        count += 1;
    }
    Ok(count)
}

/// The frames of the longest receive that is accepted, at most `most`
async fn longest_accepted(lab: &mut Lab<'_>, frames: u32, most: u32) -> Result<u32, CalibrateError> {
    let (mut fits, mut beyond) = (0, most + 1);
    while beyond - fits > 1 {
        let middle = fits + (beyond - fits) / 2;
        let mut station = station(lab, frames, BEGINNING + middle as usize * FRAME).await?;
        if station.recv(BEGINNING..BEGINNING + middle as usize * FRAME).is_ok() {
            fits = middle;
        } else {
            beyond = middle;
        }
    }
    Ok(fits)
}

/// Confirms the longest message, if a queue holds that: by receives, because no send would ever complete
async fn longest_message(
    lab: &mut Lab<'_>,
    grants: impl Iterator<Item = (u32, u32)>,
) -> Result<(), CalibrateError> {
    const FIELD: &str = "caps.max_message";
    let stated = lab.device.caps().max_message;
    let deepest = grants.max_by_key(|(_, holds)| *holds);
    let is_counted = lab.findings.profile.value("rules.queue_unit").as_deref() == Some("frames");
    let Some((asked, _)) =
        deepest.filter(|(_, holds)| !is_counted || *holds >= stated.div_ceil(FRAME as u32))
    else {
        lab.findings.profile.remark(FIELD, "the device states it; no queue is known to hold such a message");
        return Ok(());
    };
    let mut station = station(lab, asked, BEGINNING + stated as usize).await?;
    let is_accepted = station.recv(BEGINNING..BEGINNING + stated as usize).is_ok();
    drop(station);
    let accepted = match is_accepted {
        true => stated,
        false => longest_accepted(lab, asked, stated / FRAME as u32).await? * FRAME as u32,
    };
    confirm(lab, FIELD, stated, Ok(accepted));
    Ok(())
}

/// The way to grant by which queues accepted so much for so much that was asked, and in `more` at least so much, on a device with this limit
fn grant(grants: &[(u32, u32)], more: &[(u32, u32)], max: u32) -> Option<String> {
    let (_, least) = *grants.first()?;
    let is = |says: &dyn Fn(u32) -> u32| {
        let is_accepted = |(asked, accepted): &(u32, u32)| *accepted == says(*asked);
        grants.iter().all(is_accepted) && more.iter().all(|(asked, accepted)| *accepted <= says(*asked))
    };
    let ring = |asked: u32| ((asked + 1).next_power_of_two() - 1).max(least).min(max);
    let is_same = grants.iter().chain(more).all(|(_, accepted)| *accepted == least);
    if is(&|asked| asked) {
        Some("exact".to_owned())
    } else if is(&ring) && !is_same {
        Some(format!("at-least {}", if least == 1 { 0 } else { least }))
    } else if is(&|_| least) {
        Some(format!("fixed {least}"))
    } else {
        None
    }
}

/// The rule by which a queue pair reports its depth; the first of several that agree everywhere
fn read_back(reported: &[(u32, u32)], grants: &[(u32, u32)], max: u32) -> Option<&'static str> {
    let accepts = |asked| grants.iter().find(|(known, _)| *known == asked).map(|(_, accepted)| *accepted);
    let all = |says: &dyn Fn(u32) -> Option<u32>| {
        reported.iter().all(|(asked, reported)| says(*asked).is_none_or(|says| says == *reported))
    };
    if !grants.is_empty() && all(&accepts) {
        Some("accepted")
    } else if all(&|asked| Some(asked)) {
        Some("asked")
    } else if all(&|_| Some(max)) {
        Some("limit")
    } else if grants.is_empty() {
        Some("accepted")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_grant_is_recognised() {
        for (accepted, expected) in [
            ([1, 64, 2000, 4095], Some("exact")),
            ([1023, 1023, 2047, 4095], Some("at-least 1023")),
            ([1, 127, 2047, 4095], Some("at-least 0")),
            ([3000, 3000, 3000, 4095], Some("at-least 3000")),
            ([63, 63, 63, 63], Some("fixed 63")),
            ([4095, 4095, 4095, 4095], Some("fixed 4095")),
            ([1, 65, 2000, 4095], None),
        ] {
            let grants: Vec<_> = ASKED.into_iter().zip(accepted).collect();
            assert_eq!(grant(&grants, &[], 4095).as_deref(), expected, "{accepted:?}");
        }
    }

    /// Regression: of a queue that took the longest message, nothing counted, and a grant that fits the others alone was found.
    #[test]
    fn a_queue_that_accepts_at_least_so_much_counts() {
        let grants = [(1, 200), (64, 200)];
        let more = [(2000, 256), (4095, 256)];
        assert_eq!(grant(&grants, &more, 4095).as_deref(), Some("at-least 200"));
        assert_eq!(grant(&grants, &[], 4095).as_deref(), Some("fixed 200"));
        assert_eq!(grant(&[(1, 1), (64, 64)], &more, 4095).as_deref(), Some("exact"));
    }

    #[test]
    fn a_report_is_that_of_what_was_accepted_first() {
        let grants: Vec<_> = ASKED.into_iter().zip([1023, 1023, 2047, 4095]).collect();
        let asked: Vec<_> = ASKED.into_iter().zip(ASKED).collect();
        let limit: Vec<_> = ASKED.into_iter().zip([4095; 4]).collect();
        assert_eq!(read_back(&grants, &grants, 4095), Some("accepted"));
        assert_eq!(read_back(&asked, &grants, 4095), Some("asked"));
        assert_eq!(read_back(&limit, &grants, 4095), Some("limit"));
        assert_eq!(read_back(&[(1, 7)], &grants, 4095), None);
        assert_eq!(read_back(&grants, &[], 4095), Some("accepted"));
    }
}
