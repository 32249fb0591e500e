//! Messages with distinct contents

use rdma_core::FRAME;

/// The byte that fills frame `frame` of message `number`
fn fill(number: u32, frame: usize) -> u8 {
    (number as u8).wrapping_mul(31).wrapping_add(frame as u8)
}

/// Writes message `number`: its number, and bytes that differ between messages and frames
pub(super) fn write(message: &mut [u8], number: u32) {
    for (frame, bytes) in message.chunks_mut(FRAME).enumerate() {
        bytes.fill(fill(number, frame));
    }
    for (byte, digit) in message.iter_mut().zip(number.to_le_bytes()) {
        *byte = digit;
    }
}

/// Describes how `message` differs from message `number` of `len` bytes
pub(super) fn check(message: &[u8], number: u32, len: usize) -> Result<(), String> {
    if message.len() != len {
        return Err(format!("message {number} has {} bytes instead of {len}", message.len()));
    }
    if let Some(found) = message.first_chunk().copied().map(u32::from_le_bytes)
        && found != number
    {
        return Err(format!("message {found} came where message {number} was expected"));
    }
    let header = message.len().min(4);
    let is_header = message[..header] == number.to_le_bytes()[..header];
    let mut frames = message.chunks(FRAME).enumerate();
    let damaged = frames.find(|(frame, bytes)| {
        let rest = if *frame == 0 { &bytes[header..] } else { bytes };
        let expected = fill(number, *frame);
        !rest.iter().all(|byte| *byte == expected)
    });
    match damaged {
        None if is_header => Ok(()),
        None => Err(format!("the beginning of message {number} is damaged")),
        Some((frame, _)) => Err(format!("frame {frame} of message {number} is damaged")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_themselves_and_no_others() {
        for len in [0, 1, 3, 4, 5, FRAME, FRAME + 1, 3 * FRAME - 1] {
            let mut message = vec![0; len];
            write(&mut message, 7);
            check(&message, 7, len).unwrap();
            let refused = |message: &[u8], number| check(message, number, len).unwrap_err();
            if len > 0 {
                let other = refused(&message, 8);
                if len < 4 {
                    assert_eq!(other, "the beginning of message 8 is damaged");
                } else {
                    assert_eq!(other, "message 7 came where message 8 was expected");
                }
                let short = format!("message 7 has {} bytes instead of {len}", len - 1);
                assert_eq!(refused(&message[1..], 7), short);
            }
            for damaged in (0..len).step_by(997) {
                message[damaged] ^= 1;
                let expected = match (damaged, len) {
                    (0, ..4) => "the beginning of message 7 is damaged".to_owned(),
                    (0, _) => "message 6 came where message 7 was expected".to_owned(),
                    _ => format!("frame {} of message 7 is damaged", damaged / FRAME),
                };
                assert_eq!(refused(&message, 7), expected, "{damaged} of {len}");
                message[damaged] ^= 1;
            }
        }
    }
}
