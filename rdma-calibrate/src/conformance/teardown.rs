//! Ends under load

use std::time::Duration;

use rdma_core::QpState;

use super::body::Body;
use super::verdict::Outcome;

const MOMENT: Duration = Duration::from_millis(1);

pub(super) async fn posted_receives_go_with_their_queue_pair(body: &mut Body<'_, '_>) -> Outcome {
    let [a, b] = body.pair().await?;
    for slot in 0..20 {
        body.recv(a, slot, slot as usize * 64..slot as usize * 64 + 64).await?;
    }
    body.close(a).await?;
    // Later messages of the peer must not change the released memory.
    body.send(b, 1, 0..64).await?;
    body.lab.rest(MOMENT).await;
    Ok(())
}

pub(super) async fn sends_under_way_go_with_their_queue_pair(body: &mut Body<'_, '_>) -> Outcome {
    const LEN: usize = 200_000;
    body.needs(LEN)?;
    let [a, b] = body.pair().await?;
    body.recv(b, 1, 0..LEN).await?;
    body.send(a, 1, 0..LEN).await?;
    body.close(a).await?;
    body.lab.rest(MOMENT).await;
    body.close(b).await
}

pub(super) async fn a_peer_that_goes_is_silence(body: &mut Body<'_, '_>) -> Outcome {
    let [a, b] = body.pair().await?;
    body.recv(a, 1, 0..64).await?;
    body.recv(a, 2, 64..128).await?;
    // Over a connection that is still being made, TCP may say that the peer is lost.
    body.send(b, 1, 0..64).await?;
    body.received(a).await?;
    body.close(b).await?;
    body.silent(a).await
}

pub(super) async fn many_pairs_come_and_go_under_load(body: &mut Body<'_, '_>) -> Outcome {
    const LEN: usize = 9000;
    body.needs(LEN)?;
    for round in 0..20 {
        let [a, b] = body.pair().await?;
        for slot in 0..8 {
            let start = slot as usize * 10_000;
            body.recv(b, slot, start..start + LEN).await?;
            body.send(a, slot, start..start + LEN).await?;
        }
        for _ in 0..round % 8 {
            body.received(b).await?;
        }
        body.close(a).await?;
        let state = body.state(b).await?;
        ensure!(matches!(state, QpState::ReadyToSend | QpState::Error), "the peer is {state:?}");
        body.close(b).await?;
    }
    Ok(())
}
