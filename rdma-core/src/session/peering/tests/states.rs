//! The states that tests of faults distinguish

use super::*;
use crate::probe::PeeringState as S;

fn states(world: &World) -> [S; 2] {
    [0, 1].map(|node| world.nodes[node].peering.state())
}

/// Catches a state that is asked for in another order than that of the list, such as a session at rest while all paths are lost.
#[test]
fn a_peering_is_in_the_first_state_that_holds() {
    let limits = Limits { max_message: 1, max_sessions: 1, max_streams: 1, stream_share: 17 };
    let bulk_fragment = 1 << 18;
    let config = |side| PeeringConfig {
        side,
        integrity: Integrity::Crc32,
        bulk_fragment,
        local: limits,
        peer: limits,
    };
    assert_eq!(Peering::new(config(Side::Connecting)).state(), S::NoPathYet);

    let (mut world, short) = (World::new(2, 1), Duration::from_millis(1));
    assert_eq!(states(&world), [S::FirstUnproven; 2]);
    world.run(short);
    assert_eq!(states(&world), [S::NoSession; 2]);
    let session = world.nodes[0].peering.open().unwrap();
    assert_eq!(states(&world), [S::AtRest, S::NoSession]);
    world.run(short);
    assert_eq!(states(&world), [S::AtRest; 2]);

    world.nodes[0].send(session, StreamId::MAIN, message(0, 1));
    assert_eq!(states(&world), [S::AwaitsReports, S::AtRest]);
    world.run(short);
    world.nodes[1].has_memory = false;
    world.nodes[0].send(session, StreamId::MAIN, message(1, MAX_EAGER + 1));
    world.run(short);
    assert_eq!(states(&world), [S::AwaitsGrants, S::AwaitsMemory]);
    world.nodes[1].accept_all();
    world.delay_bulk(Duration::ZERO);
    assert_eq!(states(&world), [S::AwaitsGrants, S::AwaitsParts]);
    world.run(short);
    assert_eq!(states(&world), [S::AtRest; 2]);

    world.cut(1, 0);
    assert_eq!(states(&world), [S::PathMissing, S::AtRest]);
    world.cut(0, 0);
    assert_eq!(states(&world), [S::Stopping, S::AtRest]);
    for path in [0, 1] {
        world.nodes[0].peering.path_stopped(PathId(path));
    }
    assert_eq!(states(&world), [S::NoPath, S::AtRest]);
    world.run(SECOND);
    assert_eq!(states(&world), [S::AtRest; 2], "the paths are made again");

    world.nodes[0].peering.close(session);
    assert_eq!(states(&world), [S::Draining, S::AtRest]);
    world.run(short);
    assert_eq!(states(&world), [S::Flushed, S::AtRest]);
    world.nodes[1].peering.close(session);
    world.run(short);
    assert_eq!(states(&world), [S::NoSession; 2]);
}
