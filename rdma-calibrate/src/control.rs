//! The stream between both sides: lines of JSON

use std::mem;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdma_async::time::timeout;
use rdma_core::Runtime;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};

use crate::error::CalibrateError;
use crate::message::Hello;
use crate::version::VERSION;

/// The longest line: the times of some hundred rounds.
const MAX_LINE: u64 = 64 << 10;
/// The time that a side may take for an answer: a request calls several verbs, each of which may take as long as no verb that hangs.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_mins(2);
/// The time that a side may take to receive a greeting and to send its own.
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);

/// A stream of any type: a calibration is compiled once
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub(crate) struct Control<'a> {
    /// In a mutex so that a calibration is [`Sync`], and its future [`Send`]; it is never locked
    stream: Mutex<BufReader<Box<dyn Stream + 'a>>>,
    /// The beginning of a line of which the rest had not come in time
    begun: Vec<u8>,
}

impl<'a> Control<'a> {
    /// Exchanges versions with the other side
    pub(crate) async fn handshake(
        stream: impl Stream + 'a,
        runtime: &dyn Runtime,
    ) -> Result<Self, CalibrateError> {
        let mut control = Self { stream: Mutex::new(BufReader::new(Box::new(stream))), begun: Vec::new() };
        let greeted = async {
            control.send(runtime, &Hello { tb5_calibrate: VERSION }).await?;
            control.line(runtime, REPLY_TIMEOUT).await
        };
        let line = timeout(runtime, GREETING_TIMEOUT, greeted)
            .await
            .ok_or(CalibrateError::PeerSilent(GREETING_TIMEOUT))
            .flatten();
        let line = line.map_err(|error| match error {
            // Another program: a port scanner says nothing or resets the connection, and what expects other words ends it.
            CalibrateError::PeerGone | CalibrateError::PeerSilent(_) => CalibrateError::NotCalibrate,
            error => error,
        })?;
        match serde_json::from_slice(&line) {
            Ok(Hello { tb5_calibrate: VERSION }) => Ok(control),
            Ok(Hello { tb5_calibrate }) => Err(CalibrateError::Version(tb5_calibrate)),
            Err(_) => Err(CalibrateError::NotCalibrate),
        }
    }

    /// Sends `message` as a line
    pub(crate) async fn send(
        &mut self,
        runtime: &dyn Runtime,
        message: &impl Serialize,
    ) -> Result<(), CalibrateError> {
        let mut line = serde_json::to_vec(message).map_err(|_| CalibrateError::NotCalibrate)?;
        line.push(b'\n');
        let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner);
        let written = async {
            stream.write_all(&line).await?;
            stream.flush().await
        };
        let written = timeout(runtime, REPLY_TIMEOUT, written).await;
        written.ok_or(CalibrateError::PeerSilent(REPLY_TIMEOUT))?.map_err(|_| CalibrateError::PeerGone)
    }

    /// Receives a line within `patience`
    pub(crate) async fn receive<T: DeserializeOwned>(
        &mut self,
        runtime: &dyn Runtime,
        patience: Duration,
    ) -> Result<T, CalibrateError> {
        let line = self.line(runtime, patience).await?;
        serde_json::from_slice(&line).map_err(|_| CalibrateError::NotCalibrate)
    }

    /// A line, of which the next call receives the rest if it does not come in time
    async fn line(&mut self, runtime: &dyn Runtime, patience: Duration) -> Result<Vec<u8>, CalibrateError> {
        let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut limited = stream.take(MAX_LINE - self.begun.len() as u64);
        let read = timeout(runtime, patience, limited.read_until(b'\n', &mut self.begun)).await;
        let read = read.ok_or(CalibrateError::PeerSilent(patience))?;
        let line = mem::take(&mut self.begun);
        match read {
            Ok(_) if line.last() == Some(&b'\n') => Ok(line),
            // Too long to be of this program.
            Ok(_) if line.len() as u64 == MAX_LINE => Err(CalibrateError::NotCalibrate),
            // Cut off at its end, or before it.
            Ok(_) | Err(_) => Err(CalibrateError::PeerGone),
        }
    }
}

#[cfg(test)]
mod tests {
    use rdma_sim::Sim;

    use super::*;

    /// Regression: a port scanner that reset the connection at once was said to be a side that should start again, and one that took nothing
    /// was waited for as long as for an answer.
    #[test]
    fn a_stream_that_takes_no_greeting_is_of_another_program() {
        let handshake = Sim::new().run(async |net| {
            let runtime = net.host("a").runtime();
            let (here, there) = tokio::io::duplex(64);
            drop(there);
            let closed = Control::handshake(here, &*runtime).await.map(drop);
            let (here, _there) = tokio::io::duplex(1);
            let begun = net.now();
            let full = Control::handshake(here, &*runtime).await.map(drop);
            assert_eq!(net.now() - begun, GREETING_TIMEOUT);
            [closed, full]
        });
        assert_eq!(handshake.value, [Err(CalibrateError::NotCalibrate), Err(CalibrateError::NotCalibrate)]);
    }

    /// Catches a beginning that is lost when its time is over, so that the rest is taken for a line.
    #[test]
    fn a_line_that_comes_in_two_parts_is_received_by_the_second_call() {
        Sim::new().run(async |net| {
            let (here, mut there) = net.tcp();
            let runtime = net.host("a").runtime();
            there.write_all(format!("{{\"tb5_calibrate\":{VERSION}}}\n\"first").as_bytes()).await.unwrap();
            let mut control = Control::handshake(here, &*runtime).await.unwrap();
            let late: Result<String, _> = control.receive(&*runtime, REPLY_TIMEOUT).await;
            assert!(matches!(late, Err(CalibrateError::PeerSilent(REPLY_TIMEOUT))), "{late:?}");
            there.write_all(b" half\"\n\"next\"\n").await.unwrap();
            for expected in ["first half", "next"] {
                let line: String = control.receive(&*runtime, REPLY_TIMEOUT).await.unwrap();
                assert_eq!(line, expected);
            }
        });
    }
}
