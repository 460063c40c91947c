//! Merges several recordings in the order of time, and renumbers the buses.

use std::collections::BTreeMap;

use super::capture::{Capture, CaptureEvent, CaptureTime, CapturedMessage, Dropped, Events};

/// The events of several records, in the order in which they happened, each with the place of its record.
#[derive(Debug)]
pub struct Merged<'c> {
    inputs: Vec<Input<'c>>,
    /// The number in the whole of a bus of one record.
    buses: BTreeMap<(usize, u16), u16>,
}

#[derive(Debug)]
struct Input<'c> {
    events: Events<'c>,
    next: Option<CaptureEvent<'c>>,
    /// When the next one happened; what has no time of its own comes with what was before it.
    at: u64,
}

impl<'c> Input<'c> {
    fn step(&mut self) -> Option<CaptureEvent<'c>> {
        let event = std::mem::replace(&mut self.next, self.events.next());
        if let Some(at) = self.next.as_ref().and_then(time) {
            self.at = self.at.max(at);
        }
        event
    }
}

fn time(event: &CaptureEvent<'_>) -> Option<u64> {
    match event {
        CaptureEvent::Message(CapturedMessage { at: CaptureTime(at), .. })
        | CaptureEvent::Dropped(Dropped { to: at, .. }) => Some(*at),
        CaptureEvent::Peer(peer) => Some(peer.at),
        CaptureEvent::End(end) => Some(end.at),
        CaptureEvent::Bus(_) | CaptureEvent::Damaged(_) => None,
    }
}

impl<'c> Merged<'c> {
    /// Reads these records from their begin.
    #[must_use]
    pub fn new(captures: &'c [Capture]) -> Merged<'c> {
        let input = |capture: &'c Capture| {
            let mut input = Input { events: capture.events(), next: None, at: 0 };
            input.step();
            input
        };
        Merged { inputs: captures.iter().map(input).collect(), buses: BTreeMap::new() }
    }

    /// Returns the number of a bus; the next free one if it has none.
    fn bus(&mut self, input: usize, bus: u16) -> u16 {
        let next = u16::try_from(self.buses.len()).unwrap_or(u16::MAX);
        *self.buses.entry((input, bus)).or_insert(next)
    }
}

impl<'c> Iterator for Merged<'c> {
    type Item = (usize, CaptureEvent<'c>);

    fn next(&mut self) -> Option<(usize, CaptureEvent<'c>)> {
        let waiting = self.inputs.iter().enumerate().filter(|(_, input)| input.next.is_some());
        let (place, _) = waiting.min_by_key(|(place, input)| (input.at, *place))?;
        let mut event = self.inputs[place].step()?;
        match &mut event {
            CaptureEvent::Bus(bus) => bus.bus = self.bus(place, bus.bus),
            CaptureEvent::Peer(peer) => peer.bus = self.bus(place, peer.bus),
            CaptureEvent::Message(message) => message.bus = self.bus(place, message.bus),
            CaptureEvent::Dropped(dropped) => dropped.bus = self.bus(place, dropped.bus),
            CaptureEvent::End(end) => end.bus = self.bus(place, end.bus),
            CaptureEvent::Damaged(_) => {}
        }
        Some((place, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{CapturedBus, Encoder, RecordFormat};

    fn capture(name: &str, times: &[u64]) -> Capture {
        let mut out = Vec::new();
        let mut encoder = Encoder::new(RecordFormat::Pcapng);
        let bus = CapturedBus { name: name.to_owned(), ..CapturedBus::default() };
        encoder.event(&mut out, &CaptureEvent::Bus(Box::new(bus))).unwrap();
        for at in times {
            let message = CapturedMessage { at: CaptureTime(*at), bus: 0, length: 1, bytes: b"l" };
            encoder.event(&mut out, &CaptureEvent::Message(message)).unwrap();
        }
        Capture::of(out).unwrap()
    }

    #[test]
    fn what_happened_first_comes_first() {
        let captures = [capture("session", &[2, 5, 9]), capture("system", &[1, 6, 6, 7])];
        let mut names = Vec::new();
        let mut order = Vec::new();
        for (_, event) in Merged::new(&captures) {
            match event {
                CaptureEvent::Bus(bus) => names.push((bus.bus, bus.name)),
                CaptureEvent::Message(message) => order.push((message.at.0, message.bus)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(names, [(0, "session".to_owned()), (1, "system".to_owned())]);
        assert_eq!(order, [(1, 1), (2, 0), (5, 0), (6, 1), (6, 1), (7, 1), (9, 0)]);
    }
}
