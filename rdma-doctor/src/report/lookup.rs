//! Questions that a report answers

use super::{Bus, DeviceSummary, HostReport, Interface, Outcome, Platform, ToolRun};

impl HostReport {
    /// Whether the host is a Mac
    pub fn is_mac(&self) -> bool {
        self.platform == Platform::Macos
    }

    /// The interface of this name
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.as_deref()?.iter().find(|interface| interface.name == name)
    }

    /// The interface of the hardware port `Thunderbolt N` of a bus
    pub fn interface_of(&self, bus: &Bus) -> Option<&str> {
        let ports = self.hardware_ports.as_deref()?;
        ports.iter().find(|port| Some(port.receptacle) == bus.receptacle).map(|port| port.interface.as_str())
    }

    /// The bus whose interface a device is named after
    pub fn bus_of(&self, device: &DeviceSummary) -> Option<&Bus> {
        let interface = device.interface()?;
        self.thunderbolt.as_deref()?.iter().find(|bus| self.interface_of(bus) == Some(interface))
    }

    /// The device that is named after the interface of a bus
    pub fn device_of(&self, bus: &Bus) -> Option<&DeviceSummary> {
        let interface = self.interface_of(bus)?;
        self.devices.as_deref()?.iter().find(|device| device.interface() == Some(interface))
    }

    /// Names of the interfaces of Thunderbolt ports
    pub fn thunderbolt_interfaces(&self) -> impl Iterator<Item = &str> {
        self.hardware_ports.iter().flatten().map(|port| port.interface.as_str())
    }

    /// Buses with another computer at the other end of the cable
    pub fn cabled_buses(&self) -> impl Iterator<Item = &Bus> {
        self.thunderbolt.iter().flatten().filter(|bus| bus.hosts().next().is_some())
    }

    /// The bridge that an interface is a member of
    pub fn bridge_of(&self, interface: &str) -> Option<&Interface> {
        let interfaces = self.interfaces.as_deref()?;
        interfaces.iter().find(|bridge| bridge.members.iter().any(|member| member == interface))
    }

    /// The run of a tool, by the first word of its command line
    pub fn tool(&self, name: &str) -> Option<&ToolRun> {
        self.tools.iter().find(|run| run.tool.split(' ').next() == Some(name))
    }

    /// Whether a tool did not end in time, by the first word of its command line
    pub fn hung(&self, name: &str) -> bool {
        self.tool(name).is_some_and(|run| run.outcome == Outcome::Hung)
    }

    /// Major and minor version of macOS
    pub fn macos_release(&self) -> Option<(u32, u32)> {
        let mut numbers = self.macos_version.as_deref()?.trim().split('.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next().map_or(Some(0), |minor| minor.parse().ok())?;
        Some((major, minor))
    }
}
