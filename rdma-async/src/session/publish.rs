//! Snapshots for the facade of the crate `metrics`

use metrics::{SharedString, counter, gauge};
use rdma_core::Histogram;
use rdma_core::session::PathStatus;

use super::snapshot::{PathSnapshot, Snapshot};

impl Snapshot {
    /// Gives the figures to the recorder of the crate [`metrics`], if one is installed
    ///
    /// Call it now and then, from one place for each session. Names begin with `rdma_session_`, labelled with `peer` and `session`, and
    /// with `rdma_path_`, labelled with `peer` and `path`. Times are gauges in seconds, labelled with `quantile`.
    pub fn publish(&self) {
        let peer = SharedString::from(self.peer.to_string());
        let session = SharedString::from(self.session.to_string());
        let labels = [("peer", peer.clone()), ("session", session)];
        counter!("rdma_session_messages_queued", &labels).absolute(self.messages_queued);
        counter!("rdma_session_messages_delivered", &labels).absolute(self.messages_delivered);
        counter!("rdma_session_messages_received", &labels).absolute(self.messages_received);
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
    fn publish(&self, labels: &[(&'static str, SharedString)]) {
        let Self { device: _, blocked, status, counts, round_trips } = self;
        gauge!("rdma_path_blocked", labels).set(f64::from(blocked.is_some()));
        gauge!("rdma_path_up", labels).set(f64::from(*status == PathStatus::Up));
        counter!("rdma_path_made", labels).absolute(counts.made.into());
        counter!("rdma_path_packets_sent", labels).absolute(counts.packets_sent);
        counter!("rdma_path_packets_received", labels).absolute(counts.packets_received);
        counter!("rdma_path_packets_lost", labels).absolute(counts.packets_lost);
        counter!("rdma_path_bulk_bytes_granted", labels).absolute(counts.bulk_bytes_granted);
        counter!("rdma_path_retransmitted_bytes", labels).absolute(counts.retransmitted_bytes);
        publish_times("rdma_path_round_trip_seconds", round_trips, labels);
    }
}

fn publish_times(name: &'static str, times: &Histogram, labels: &[(&'static str, SharedString)]) {
    for (text, quantile) in [("0.5", 0.5), ("0.99", 0.99), ("1", 1.0)] {
        if let Some(time) = times.quantile(quantile) {
            let labels = [labels, &[("quantile", SharedString::from(text))]].concat();
            gauge!(name, &labels).set(time.as_secs_f64());
        }
    }
}
