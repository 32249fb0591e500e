//! Snapshots for the facade of the crate `metrics`

use metrics::{SharedString, counter, gauge};
use rdma_core::Histogram;
use rdma_core::session::{LaneCounts, PathStatus};

use super::snapshot::{PathSnapshot, Snapshot};

type Labels = [(&'static str, SharedString)];

impl Snapshot {
    /// Gives the figures to the recorder of the crate [`metrics`], if one is installed
    ///
    /// Call it now and then, from one place for each session. Names begin with `rdma_session_`, labelled with `peer` and `session`;
    /// with `rdma_path_`, labelled with `peer` and `path`; and with `rdma_lane_`, for each [`LaneCounts`], labelled also with `lane`, which
    /// is `eager` or `bulk`. Times are gauges in seconds, labelled with `quantile`.
    pub fn publish(&self) {
        let peer = SharedString::from(self.peer.to_string());
        let session = SharedString::from(self.session.to_string());
        let labels = [("peer", peer.clone()), ("session", session)];
        counter!("rdma_session_messages_queued", &labels).absolute(self.messages_queued);
        counter!("rdma_session_bytes_queued", &labels).absolute(self.bytes_queued);
        counter!("rdma_session_messages_delivered", &labels).absolute(self.messages_delivered);
        counter!("rdma_session_messages_received", &labels).absolute(self.messages_received);
        counter!("rdma_session_bytes_received", &labels).absolute(self.bytes_received);
        gauge!("rdma_session_messages_unread", &labels).set(self.messages_unread as f64);
        gauge!("rdma_session_messages_in_flight", &labels).set(self.messages_in_flight as f64);
        gauge!("rdma_session_streams", &labels).set(self.streams as f64);
        publish_times("rdma_session_delivery_seconds", &self.deliveries, &labels);
        for (number, path) in self.paths.iter().enumerate() {
            path.publish(&[("peer", peer.clone()), ("path", number.to_string().into())]);
        }
    }
}

impl PathSnapshot {
    fn publish(&self, labels: &Labels) {
        let Self {
            device: _,
            blocked,
            failure,
            status,
            counts,
            round_trips,
            part_times,
            eager_rate,
            bulk_rate,
        } = self;
        gauge!("rdma_path_blocked", labels).set(f64::from(blocked.is_some()));
        gauge!("rdma_path_failing", labels).set(f64::from(failure.is_some()));
        gauge!("rdma_path_up", labels).set(f64::from(*status == PathStatus::Up));
        counter!("rdma_path_made", labels).absolute(counts.made.into());
        counter!("rdma_path_bulk_bytes_granted", labels).absolute(counts.bulk_bytes_granted);
        publish_times("rdma_path_round_trip_seconds", round_trips, labels);
        publish_times("rdma_path_part_seconds", part_times, labels);
        for (lane, counts, rate) in [("eager", &counts.eager, eager_rate), ("bulk", &counts.bulk, bulk_rate)]
        {
            let labels = &[labels, &[("lane", SharedString::from(lane))]].concat();
            publish_lane(counts, labels);
            // 0 if it is at least half as fast as reported.
            gauge!("rdma_lane_measured_bytes_per_second", labels).set(rate.unwrap_or(0) as f64);
        }
    }
}

fn publish_lane(counts: &LaneCounts, labels: &Labels) {
    counter!("rdma_lane_sent", labels).absolute(counts.sent);
    counter!("rdma_lane_bytes_sent", labels).absolute(counts.bytes_sent);
    counter!("rdma_lane_received", labels).absolute(counts.received);
    counter!("rdma_lane_bytes_received", labels).absolute(counts.bytes_received);
    counter!("rdma_lane_lost", labels).absolute(counts.lost);
    counter!("rdma_lane_retransmitted", labels).absolute(counts.retransmitted);
    counter!("rdma_lane_retransmitted_bytes", labels).absolute(counts.retransmitted_bytes);
    counter!("rdma_lane_damaged", labels).absolute(counts.damaged);
    counter!("rdma_lane_refused", labels).absolute(counts.refused);
    gauge!("rdma_lane_in_flight", labels).set(counts.in_flight);
    gauge!("rdma_lane_credits", labels).set(counts.credits);
}

fn publish_times(name: &'static str, times: &Histogram, labels: &Labels) {
    for (text, quantile) in [("0.5", 0.5), ("0.99", 0.99), ("1", 1.0)] {
        if let Some(time) = times.quantile(quantile) {
            let labels = [labels, &[("quantile", SharedString::from(text))]].concat();
            gauge!(name, &labels).set(time.as_secs_f64());
        }
    }
}
