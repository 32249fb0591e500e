//! Posts, completions and events

use std::ffi::c_int;
use std::ptr::null_mut;

use rdma_sim_verbs::{ibv_ack_cq_events, ibv_get_cq_event};
use rdma_verbs_abi::{Cq, RecvWr, SendWr, Sge, Wc};

use super::{EINVAL, Program, call, errno, log_answer, log_argument, log_call};

const WRITE: u32 = 0;
const READ: u32 = 4;
const ATOMICS: [u32; 2] = [5, 6];

/// Length of a list of requests
const LIST_LEN: usize = 4;

impl Program<'_> {
    /// A scatter-gather element, mostly inside of a region
    fn element(&mut self) -> Sge {
        let (which, choice) = (self.input.byte(), self.input.byte());
        let Some(region) = self.mrs.one(which) else {
            return Sge {
                addr: self.arena.start().addr() as u64,
                length: 16,
                lkey: u32::from(choice) << 8 | 1,
            };
        };
        let (addr, len, lkey) = (region.addr, region.len, region.lkey);
        let offset = usize::from(self.input.byte()) * 17 % len;
        let length = self.input.length(len - offset) as u32;
        let sge = Sge { addr: (addr + offset) as u64, length, lkey };
        match choice {
            250.. => Sge { addr: sge.addr.wrapping_add(u64::MAX << (choice % 64)), ..sge },
            244..250 => Sge { length: u32::MAX >> (choice % 20), ..sge },
            238..244 => Sge { lkey: u32::from(choice), ..sge },
            232..238 => Sge { lkey: self.mrs.one(choice).map_or(0, |other| other.lkey), ..sge },
            _ => sge,
        }
    }

    /// Scatter-gather elements, and the count that the request claims
    fn elements(&mut self) -> (Vec<Sge>, c_int) {
        let choice = self.input.byte();
        let count = if choice < 220 { 1 } else { usize::from(choice % 4) };
        let list: Vec<_> = (0..count).map(|_| self.element()).collect();
        let claimed = match choice {
            255 => c_int::MIN,
            254 => -1,
            253 => 65,
            252 => c_int::MAX,
            _ => count as c_int,
        };
        (list, claimed)
    }

    pub(super) fn send(&mut self) {
        let qp = self.qp();
        let count = if self.input.byte() < 200 { 1 } else { LIST_LEN };
        let mut lists: Vec<_> = (0..count).map(|_| self.elements()).collect();
        let mut requests: Vec<SendWr> = Vec::new();
        for (list, claimed) in &mut lists {
            let (opcode, flags) = (self.input.byte(), self.input.byte());
            let remote = self.mrs.one(flags);
            let (mut addr, rkey) = remote.map_or((0, 0), |region| (region.addr as u64, region.rkey));
            addr = addr.wrapping_add(if flags < 250 { u64::from(flags / 8) * 8 } else { u64::MAX << 12 });
            let opcode = if opcode < 128 { 2 } else { u32::from(opcode % 16) };
            let atomic = ATOMICS.contains(&opcode);
            requests.push(SendWr {
                wr_id: requests.len() as u64,
                next: null_mut(),
                sg_list: if list.is_empty() { null_mut() } else { list.as_mut_ptr() },
                num_sge: *claimed,
                opcode,
                send_flags: u32::from(flags),
                imm_data: 0,
                wr: [addr, if atomic { u64::from(flags) } else { rkey.into() }, 7, rkey.into()],
                qp_type: 0,
                rest: [0; 6],
            });
        }
        let places: Vec<*mut SendWr> = requests.iter_mut().map(|request| &raw mut *request).collect();
        for (at, place) in places.iter().enumerate().take(count - 1) {
            call!((**place).next = places[at + 1]);
        }
        let mut bad = null_mut();
        let Some(post) = self.ops.as_ref().and_then(|ops| ops.post_send) else { return };
        let answer = call!(post(qp, places[0], &raw mut bad));
        let accepted = accepted(answer, places.iter().position(|place| *place == bad), count);
        assert!(answer != 0 || self.qps.about(qp).is_some());
        for (place, (list, _)) in places.iter().zip(&lists).take(accepted) {
            let (opcode, addr) = (call!((**place).opcode), call!((**place).wr[0]));
            for sge in list {
                match opcode {
                    WRITE => self.arena.post(addr, sge.length),
                    READ => self.arena.post(sge.addr, sge.length),
                    _ if ATOMICS.contains(&opcode) => {
                        self.arena.post(addr, 8);
                        self.arena.post(sge.addr, 8);
                    }
                    _ => (),
                }
            }
        }
        assert_eq!(call!(post(null_mut(), places[0], &raw mut bad)), EINVAL);
    }

    pub(super) fn receive(&mut self) {
        let qp = self.qp();
        let count = if self.input.byte() < 200 { 1 } else { LIST_LEN };
        let mut lists: Vec<_> = (0..count).map(|_| self.elements()).collect();
        let mut requests: Vec<RecvWr> = Vec::new();
        for (list, claimed) in &mut lists {
            let sg_list = if list.is_empty() { null_mut() } else { list.as_mut_ptr() };
            let wr_id = requests.len() as u64;
            requests.push(RecvWr { wr_id, next: null_mut(), sg_list, num_sge: *claimed });
        }
        let places: Vec<*mut RecvWr> = requests.iter_mut().map(|request| &raw mut *request).collect();
        for (at, place) in places.iter().enumerate().take(count - 1) {
            call!((**place).next = places[at + 1]);
        }
        let mut bad = null_mut();
        let wants_bad = self.input.byte() < 240;
        let bad_place = if wants_bad { &raw mut bad } else { null_mut() };
        let Some(post) = self.ops.as_ref().and_then(|ops| ops.post_recv) else { return };
        let answer = call!(post(qp, places[0], bad_place));
        let stopped = places.iter().position(|place| *place == bad);
        let accepted = if wants_bad { accepted(answer, stopped, count) } else { count };
        assert!(answer != 0 || self.qps.about(qp).is_some());
        for sge in lists.iter().take(accepted).flat_map(|(list, _)| list) {
            self.arena.post(sge.addr, sge.length);
        }
        assert_eq!(call!(post(null_mut(), places[0], null_mut())), EINVAL);
    }

    pub(super) fn poll(&mut self) {
        let cq = self.cq();
        const ROOM: usize = 40;
        let untouched = Wc { wr_id: u64::MAX, ..Wc::default() };
        let mut completions = [untouched; ROOM];
        let choice = self.input.byte();
        let count = match choice {
            255 => c_int::MIN,
            254 => -1,
            _ => c_int::from(choice) % (ROOM as c_int + 1),
        };
        let place = if choice == 253 { null_mut() } else { completions.as_mut_ptr() };
        let Some(poll) = self.ops.as_ref().and_then(|ops| ops.poll_cq) else { return };
        let answer = call!(poll(cq, count, place));
        assert!(
            answer <= count.max(0) && [0, -6, -12, -EINVAL].contains(&answer.min(0)),
            "{answer} of {count}"
        );
        assert!(answer < 0 || self.cqs.about(cq).is_some());
        let (filled, rest) = completions.split_at(answer.max(0) as usize);
        assert!(
            rest.iter().all(|entry| entry.wr_id == u64::MAX),
            "more completions were written than returned"
        );
        for entry in filled {
            assert!(entry.wr_id < LIST_LEN as u64 && [0, 1, 4, 5, 7, 10, 12].contains(&entry.status));
        }
    }

    pub(super) fn notify(&mut self) {
        let (cq, channel) = (self.cq(), self.channel());
        let Some(notify) = self.ops.as_ref().and_then(|ops| ops.req_notify_cq) else { return };
        let answer = call!(notify(cq, 0));
        assert!(answer == EINVAL || answer == 0 && self.cqs.about(cq).is_some());
        let (mut event_cq, mut about): (*mut Cq, _) = (null_mut(), null_mut());
        match call!(ibv_get_cq_event(channel, &raw mut event_cq, &raw mut about)) {
            0 => assert!(self.cqs.about(event_cq).is_some(), "an event of a destroyed queue"),
            -1 => assert!([EINVAL, libc::EAGAIN].contains(&errno())),
            answer => panic!("{answer}"),
        }
        assert_eq!(call!(ibv_get_cq_event(channel, null_mut(), &raw mut about)), -1);
        call!(ibv_ack_cq_events(cq, u32::MAX));
    }
}

/// The number of accepted requests of a list; all of them if `bad_wr` was not set
fn accepted(answer: c_int, stopped: Option<usize>, count: usize) -> usize {
    assert!([0, 6, 12, -12, EINVAL, 102].contains(&answer), "{answer}");
    stopped.filter(|_| answer > 0).unwrap_or(count)
}
