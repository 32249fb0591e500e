//! A device of another process, or of another host, behind the traits
//!
//! For tests: the [conformance body](crate::conformance) opens both ends of a cable in one process, and one of them may be a
//! [`RemoteDevice`]. [`serve`] has the real one. Each call is a question and its answer over TCP, one after the other.
//!
//! Memory that is registered here has a shadow there. What a request names goes along with its post, and what has arrived comes
//! back with the poll that finds the completion; the far end also looks whether the device wrote anywhere else. One-sided operations
//! are unsupported, because nobody would tell this end about them.
//!
//! There is no authentication: whoever reaches the server may use the device.

mod far;
mod local;
mod message;
mod near;
mod wire;

use std::io::{self, Read, Write};

pub use far::{Ended, serve};
pub use local::{
    DEVICE_VARIABLE, END_VARIABLE, KIND_VARIABLE, LISTEN_VARIABLE, LocalDevice, PEER_VARIABLE, TRUST_VARIABLE,
};
pub use near::{RemoteCompletionQueue, RemoteDevice, RemoteHost, RemoteMemoryRegion, RemoteQueuePair};

/// Two messages of the longest that Apple's device sends, and what belongs to them
const MAX_FRAME: usize = (32 << 20) + 4096;

fn write_frame(stream: &mut impl Write, body: &[u8]) -> io::Result<()> {
    if body.len() > MAX_FRAME {
        return Err(io::Error::other(format!(
            "{} bytes are more than a frame of the control protocol",
            body.len()
        )));
    }
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(body);
    stream.write_all(&frame)
}

fn read_frame(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > MAX_FRAME {
        let why = format!("a frame of {len} bytes is not one of the control protocol");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut body = Vec::new();
    // Grows with what arrives, whatever was announced.
    stream.take(len as u64).read_to_end(&mut body)?;
    if body.len() == len { Ok(body) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_bounded_and_whole() {
        let mut stream = Vec::new();
        write_frame(&mut stream, b"abc").unwrap();
        assert_eq!(read_frame(&mut stream.as_slice()).unwrap(), b"abc");
        for cut in 0..stream.len() {
            assert_eq!(read_frame(&mut &stream[..cut]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        let huge = u32::MAX.to_le_bytes();
        assert_eq!(read_frame(&mut huge.as_slice()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(write_frame(&mut io::sink(), &vec![0; MAX_FRAME + 1]).is_err());
    }
}
