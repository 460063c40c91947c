//! The sheet of one hang: what its time went to, what it was blocked in, its stack, whom it waited for, and what mends it.

use std::fmt::Write as _;

use report::figure::Quantity;
use report::paint::Tone;
use report::paragraph::wrap;
use report::table::{Align, TextTable};

use super::{HangTextStyle, time};
use crate::model::{DiskUse, DiskUser, Hang, HangChain, HangHop, ObjectKind};

impl HangTextStyle<'_> {
    /// Writes everything about one hang.
    #[must_use]
    pub fn sheet(&self, hang: &Hang) -> String {
        let mut text = format!("{}\n", self.line(hang));
        let mut facts = vec![format!(
            "process {}{}{}; began {}{}",
            hang.process,
            match hang.process_began_ns {
                0 => String::new(),
                began => format!(", started {}", self.local(began).strftime("%Y-%m-%d %H:%M:%S")),
            },
            match &*hang.unit {
                "" => String::new(),
                unit => format!(" of {}", self.others(unit)),
            },
            self.local(hang.started_ns).strftime("%Y-%m-%d %H:%M:%S"),
            match hang.uncertain_ns {
                // Of one that went on a part is known.
                _ if hang.goes_on => String::new(),
                0 if hang.unseen.has_unseen_time() => {
                    "; the length is that of the part that was seen".to_owned()
                }
                0 => "; the length is exact".to_owned(),
                uncertain => format!("; the length may be wrong by {}", time(uncertain)),
            }
        )];
        if hang.goes_on {
            facts.push(
                "It went on when this was written; how long it took in the end is not known."
                    .to_owned(),
            );
        }
        if let Some([cpu, io, memory]) = hang.pressure {
            let share = |part: u16| format!("{}.{:02} %", part / 100, part % 100);
            facts.push(format!(
                "pressure in the ten seconds before its end: processors {}, disks {}, memory {}",
                share(cpu),
                share(io),
                share(memory)
            ));
        }
        for fact in facts {
            text.push_str(&self.paint.set(Tone::Dim, wrap(&fact, self.width, "").trim_end()));
            text.push('\n');
        }
        text.push_str("\nWhat the time went to\n");
        let mut table = TextTable::new(&[("part", Align::Text), ("time", Align::Point)]);
        let mut parts = hang.parts.named();
        parts.sort_by_cached_key(|(_, part)| std::cmp::Reverse(*part));
        for (name, part) in parts.into_iter().filter(|(_, part)| *part > 0) {
            table.row(vec![name.into(), time(part).into()]);
        }
        text.push_str(&table.render(self.width, self.paint));
        if !hang.calls.is_empty() {
            text.push_str("\nWhat it was blocked in\n");
            let columns = [
                ("in", Align::Text),
                ("blocked", Align::Point),
                ("seen", Align::Point),
                ("on", Align::Text),
                ("object", Align::Text),
            ];
            let mut table = TextTable::new(&columns);
            table.ends_in_paths();
            for share in &hang.calls {
                let object = share.object.as_ref();
                let on = object.map_or(String::new(), |object| {
                    format!("{} {}", object.file_system, object.device).trim().to_owned()
                });
                let name = object.map_or(String::new(), |object| match object.kind {
                    ObjectKind::File => self.path(&object.name),
                    _ => self.others(&object.name),
                });
                table.row(vec![
                    self.others(&share.call).into(),
                    time(share.blocked_ns).into(),
                    share.seen.to_string().into(),
                    self.others(&on).into(),
                    name.into(),
                ]);
            }
            text.push_str(&table.render(self.width, self.paint));
        }
        if !hang.frames.is_empty() {
            text.push_str("\nWhere most of it was spent\n");
            for (at, frame) in (0_u32..).zip(&hang.frames) {
                let is_blamed = hang.blamed == Some(at);
                let mark = if is_blamed { ">" } else { " " };
                let line = format!("{mark} {}  {}", frame.function, frame.module);
                let tone = if is_blamed { Tone::Strong } else { Tone::Dim };
                let _ = writeln!(text, "{}", self.paint.set(tone, &self.others(line.trim_end())));
            }
        }
        if !hang.kernel_functions.is_empty() {
            text.push_str("\nWhere it waited in the kernel\n");
            for name in &hang.kernel_functions {
                let line = format!("  {}", self.others(name));
                let _ = writeln!(text, "{}", self.paint.set(Tone::Dim, &line));
            }
        }
        if let Some(chain) = &hang.chain {
            text.push_str("\nWhom the longest wait was for\n");
            for (at, hop) in chain.hops.iter().enumerate() {
                let end = (at + 1 == chain.hops.len()).then_some(chain);
                let line = self.others(&hop_sentence(hop, end));
                let _ = write!(text, "{}", wrap(&line, self.width, "  "));
            }
            if chain.has_losses {
                text.push_str("  Wake-ups were lost that may belong to it.\n");
            }
        }
        if let Some(used) = &hang.disk_use {
            let _ =
                writeln!(text, "\nWhat was read and written in {} of it", time(used.counted_ns));
            text.push_str(&self.disk_use(used).render(self.width, self.paint));
            if let Some(missing) = used.processes.missing() {
                text.push_str(&wrap(missing, self.width, ""));
            }
        }
        for sentence in hang.unseen.sentences(!hang.frames.is_empty()) {
            let _ = write!(text, "\n{}", wrap(sentence, self.width, ""));
        }
        if let Some(advice) = self.advice(hang) {
            let _ = write!(text, "\n{advice}");
        }
        text
    }

    fn disk_use(&self, used: &DiskUse) -> TextTable {
        let columns = [
            ("by", Align::Text),
            ("process", Align::Text),
            ("read", Align::Point),
            ("written", Align::Point),
        ];
        let mut table = TextTable::new(&columns);
        #[expect(clippy::cast_precision_loss, reason = "it is shown with three digits")]
        let bytes = |bytes: u64| Quantity::Size.show(bytes as f64);
        for DiskUser { program, process, read_bytes, written_bytes } in &used.programs {
            table.row(vec![
                self.others(program).into(),
                match process {
                    // A unit.
                    0 => "".into(),
                    process => process.to_string().into(),
                },
                bytes(*read_bytes).into(),
                bytes(*written_bytes).into(),
            ]);
        }
        let (read, written) = (bytes(used.read_bytes), bytes(used.written_bytes));
        table.row(vec!["all, on disks".into(), "".into(), read.into(), written.into()]);
        table
    }
}

/// Says what a thread of a chain did; the last one with what its time went to.
pub(super) fn hop_sentence(hop: &HangHop, end: Option<&HangChain>) -> String {
    let unit = if hop.unit.is_empty() { String::new() } else { format!(", {}", hop.unit) };
    let place = match (&*hop.call, &*hop.function) {
        ("", "") => String::new(),
        (word, "") | ("", word) => format!(" in {word}"),
        (call, function) => format!(" in {call} ({function})"),
    };
    let did = match end.map(|chain| (&*chain.end, time(chain.end_ns))) {
        None => format!("waited {}{place}", time(hop.waited_ns)),
        Some(("timer", part)) => format!("slept {part}{place} until a time that was set"),
        Some(("disk", part)) => format!("waited {part} for a disk{place}"),
        Some(("network", part)) => format!("waited {part} for the network{place}"),
        Some(("device", part)) => format!("waited {part} for a device or an interrupt{place}"),
        Some(("processor", part)) => format!("ran for {part}"),
        Some(("ready", part)) => format!("ran for {part}, most of it without a processor"),
        Some(("several", _)) => "did several things".to_owned(),
        Some(("too-long", part)) => format!("waited {part}{place}; more are not followed"),
        Some((_, part)) => format!("took {part}{place}; for what is not known"),
    };
    match hop.process {
        // Of another user's is told no more than that.
        0 => format!("{} {did}", hop.program),
        process => format!("{} [{process}{unit}] {did}", hop.program),
    }
}
