mod any;
mod build;
mod mac;
mod matrix;
mod shapes;
mod text;

use super::{MacModel, Topology};

fn two_minis() -> Topology {
    Topology::new().host("left", MacModel::MacMiniM4Pro).host("right", MacModel::MacStudioM4Max)
}
