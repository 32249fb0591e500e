//! What messages occupy the transmitter of a device for, and what the times between them show

use rdma_core::FRAME;
use rdma_sim::{LineRate, Model, Timing};

/// The time for which a message occupies the transmitter
pub(crate) fn occupied(rate: LineRate, model: &Model, len: usize) -> u64 {
    let t = &model.timing;
    let line = |len| {
        let ns = if t.line_rate { rate.frame_ns(len) * t.frame_ns } else { 0 };
        ns.div_ceil(Timing::DEFAULT_FRAME_NS) * 100 / u64::from(100 - t.ip_percent)
    };
    let bound =
        |len| if t.mac_bytes_per_us > 0 { (len as u64 * 1000).div_ceil(t.mac_bytes_per_us) } else { 0 };
    let first = (t.per_message_ns + line(len.min(FRAME))).max(bound(len.min(FRAME)));
    first + (len as u64).div_ceil(FRAME as u64).saturating_sub(1) * line(FRAME).max(bound(FRAME))
}

/// The time of a frame, and that of a message beside its bytes, as the times between messages show it; `None` if a bound of the payload hides
/// the time of messages
pub(crate) fn frame_and_message(rate: LineRate, model: &Model) -> Option<[f64; 2]> {
    let [short, part, frame, two] = [8, 1024, FRAME, 2 * FRAME].map(|len| occupied(rate, model, len) as f64);
    let [share, of_part] =
        [8, 1024].map(|len| LineRate::TB5.wire_bytes(len) as f64 / LineRate::TB5.wire_bytes(FRAME) as f64);
    let longest = model.caps.max_message as usize;
    let by_length = (frame - short) / (1.0 - share);
    let is_bounded = short + by_length * (of_part - share) - part > 0.02 * frame;
    let frame_ns = match longest >= 2 * FRAME {
        true => two - frame,
        false if is_bounded => frame,
        false => by_length,
    };
    let alone = (short - share * frame_ns).max(0.0);
    (alone - (frame - frame_ns) <= 0.02 * frame).then_some([frame_ns, alone])
}

/// True if bytes take time, by the rate of the cable or by a bound that is not hidden by what each message takes
pub(crate) fn takes_time(model: &Model) -> bool {
    let [short, longest] = [8, (2 * FRAME).min(model.caps.max_message as usize)];
    occupied(LineRate::TB5, model, longest) > occupied(LineRate::TB5, model, short)
}

/// True if frames take time, and less than half of what the rate of the port allows, which `stages::bound` takes for a mistake
pub(crate) fn exceeds_its_port(rate: LineRate, model: &Model) -> bool {
    let stated = FRAME as f64 * 8.0 * 1e9 / rate.bits_per_second as f64;
    takes_time(model) && frame_and_message(rate, model).is_some_and(|[frame, _]| frame * 2.0 < stated)
}
