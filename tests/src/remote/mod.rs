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
    use std::net::{TcpListener, TcpStream};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread::JoinHandle;

    use rdma_core::{Cause, Error, Invalid, Verb};
    use rdma_sim::SimDevice;

    use super::*;

    const REFUSED: Error = Error::new(Verb::OpenDevice, Cause::Invalid(Invalid::NoSuchDevice));

    /// A server for one peer, whose device cannot be opened
    #[expect(clippy::disallowed_methods, reason = "the other end has to run beside this one")]
    fn server() -> (String, JoinHandle<io::Result<Ended>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serve = move || serve(listener.accept()?.0, || Err::<SimDevice, _>(REFUSED));
        (address, std::thread::spawn(serve))
    }

    #[test]
    fn errors_come_back_as_they_are_and_servers_learn_how_it_ended() {
        let (address, left) = server();
        let host = RemoteHost::connect(&address).unwrap();
        assert_eq!(host.open().err(), Some(REFUSED));
        drop(host);
        assert_eq!(left.join().unwrap().unwrap(), Ended::Left);
        let (address, finished) = server();
        RemoteHost::connect(&address).unwrap().finish();
        assert_eq!(finished.join().unwrap().unwrap(), Ended::Finished);
        // Nobody is there any more.
        let refused = RemoteHost::connect(&address).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("the far end at {address}: ")), "{refused}");
    }

    #[test]
    fn a_server_ends_with_a_peer_that_talks_nonsense_and_answers_one_of_another_version() {
        let (address, ended) = server();
        let mut stream = TcpStream::connect(&address).unwrap();
        let mut hello = Vec::new();
        wire::Wire::put(&message::Question::Hello { version: message::VERSION + 1 }, &mut hello);
        write_frame(&mut stream, &hello).unwrap();
        assert_eq!(read_frame(&mut stream).unwrap()[0], message::outcome::WRONG);
        write_frame(&mut stream, &[99]).unwrap();
        assert_eq!(ended.join().unwrap().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the other end has to run beside this one")]
    fn a_far_end_that_goes_in_the_middle_is_said_to_be_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            read_frame(&mut stream).unwrap();
            write_frame(&mut stream, &[message::outcome::DONE]).unwrap();
        });
        let host = RemoteHost::connect(&address).unwrap();
        server.join().unwrap();
        for _ in 0..2 {
            let panic = catch_unwind(AssertUnwindSafe(|| host.open().map(drop))).unwrap_err();
            let why = panic.downcast_ref::<String>().unwrap();
            assert!(why.starts_with(&format!("the far end at {address}")), "{why}");
        }
    }

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
