//! What the fleet and its machines are like, all from one seed.

use hangs::model::{
    CallObject, CallShare, DiskUse, DiskUser, Hang, HangCause, HangChain, HangFrame, HangHop,
    ObjectKind, ProgramSteps, StepHistogram, UnseenParts, WatchedPeriod,
};
use hangs::store::StoredHistory;
use trace::report::account::TimeParts;
use unjank_export::facts::Fact;

/// 2026-11-01 in UTC.
const BEGIN_NS: u64 = 1_793_491_200_000_000_000;
const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

/// The programs, those that hang most first.
const PROGRAMS: [&str; 24] = [
    "firefox",
    "nautilus",
    "code",
    "soffice.bin",
    "thunderbird",
    "gnome-shell",
    "chromium",
    "gimp",
    "dolphin",
    "plasmashell",
    "kate",
    "evince",
    "slack",
    "signal-desktop",
    "zoom",
    "inkscape",
    "gedit",
    "eog",
    "vlc",
    "konsole",
    "gnome-terminal",
    "okular",
    "krita",
    "blender",
];
const MODELS: [&str; 8] = [
    "Samsung SSD 980",
    "WDC PC SN730",
    "KINGSTON SA400",
    "SLOWDISK 500",
    "INTEL SSDPEKNW5",
    "CT500MX500SSD1",
    "SK hynix BC711",
    "TOSHIBA MQ04",
];
const PEERS: [&str; 8] = [
    "dconf-service",
    "gvfsd",
    "xdg-desktop-portal",
    "pulseaudio",
    "Xorg",
    "systemd-resolved",
    "tracker-miner-fs",
    "ibus-daemon",
];
const FILES: [&str; 10] = [
    ".local/share/recently-used.xbel",
    ".config/dconf/user",
    ".cache/thumbnails/large",
    ".mozilla/firefox/abcd.default/places.sqlite",
    ".local/share/gvfs-metadata/home",
    ".config/Code/User/state.vscdb",
    "Documents/report-2026.odt",
    "Pictures",
    ".cache/fontconfig/CACHEDIR.TAG",
    ".thunderbird/x.default/global-messages-db.sqlite",
];

/// What all machines share.
#[derive(Debug)]
pub(super) struct FleetPlan {
    seed: u64,
    days: u32,
    hangs: u32,
    /// The stacks of each program, the frequent ones first.
    stacks: Vec<Vec<Vec<HangFrame>>>,
}

/// One of `length`, the small ones more often: as names and stacks are in real fleets.
fn skewed(random: &mut fastrand::Rng, length: usize) -> usize {
    let share = random.f64();
    let at = (share * share * share * length as f64).floor();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 <= at < length")]
    let at = at as usize;
    at.min(length - 1)
}

/// A number around 1, mostly between a third and three.
fn spread(random: &mut fastrand::Rng) -> f64 {
    let normal: f64 = (0..6).map(|_| random.f64()).sum::<f64>() - 3.0;
    (normal * 1.1).exp()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is positive and far below 2^63"
)]
fn scaled(length: u64, factor: f64) -> u64 {
    (length as f64 * factor) as u64
}

impl FleetPlan {
    pub(super) fn of(seed: u64, days: u32, hangs: u32) -> FleetPlan {
        let mut random = fastrand::Rng::with_seed(seed);
        let frame = |random: &mut fastrand::Rng, program: &str| {
            let module = match random.u32(0..10) {
                0..=3 => program.to_owned(),
                4 => "libplanted.so.1".to_owned(),
                5..=6 => "libgtk-3.so.0.2404.29".to_owned(),
                _ => format!(
                    "lib{}.so.{}",
                    ["glib-2.0", "gio-2.0", "QtCore", "xul", "c"][skewed(random, 5)],
                    random.u32(0..3)
                ),
            };
            let function = format!(
                "{}_{}_{}",
                &module[..3],
                ["load", "update", "get", "draw", "sync"][random.usize(0..5)],
                skewed(random, 400)
            );
            HangFrame { function, module: module.into() }
        };
        let stacks = PROGRAMS.iter().map(|program| {
            let count = 1500;
            (0..count)
                .map(|_| {
                    let depth = random.usize(6..28);
                    (0..depth).map(|_| frame(&mut random, program)).collect()
                })
                .collect()
        });
        let stacks = stacks.collect();
        FleetPlan { seed, days, hangs, stacks }
    }
}

/// One machine.
#[derive(Debug)]
pub(super) struct MachinePlan {
    number: u32,
    random: fastrand::Rng,
    model: usize,
    /// The day on which Files is updated.
    update: u32,
    programs: Vec<usize>,
    /// How often it hangs, beside others.
    rate: f64,
    next: u64,
}

impl MachinePlan {
    pub(super) fn of(fleet: &FleetPlan, number: u32) -> MachinePlan {
        let seed = fleet.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(number);
        let mut random = fastrand::Rng::with_seed(seed);
        let model = random.usize(0..MODELS.len());
        let days = fleet.days.max(3);
        let update = random.u32(days / 3..=days * 2 / 3);
        let mut programs: Vec<usize> = (2..PROGRAMS.len()).collect();
        random.shuffle(&mut programs);
        programs.truncate(10);
        programs.extend([0, 1]);
        programs.sort_unstable();
        let rate = 0.3 + 1.4 * random.f64();
        MachinePlan { number, random, model, update, programs, rate, next: 1 }
    }

    fn one_of(&mut self, texts: &[&str]) -> String {
        let at = skewed(&mut self.random, texts.len());
        texts[at].to_owned()
    }

    /// Adds a day of eight hours to what its store holds.
    pub(super) fn live(&mut self, fleet: &FleetPlan, day: u32, stored: &mut StoredHistory) {
        let begin = BEGIN_NS + u64::from(day) * DAY + 7 * 3600 * SECOND;
        let hours = 8 * 3600 * SECOND;
        let watched = self.programs.iter().map(|program| ProgramSteps {
            program: PROGRAMS[*program].to_owned(),
            watched_ns: hours / 2,
            present_ns: hours / 2,
            processes: 1,
            without_loop: 0,
            late_ns: 0,
            steps: StepHistogram([40, 20, 10, 8, 4, 2, 1, 0, 0, 0]),
        });
        stored.periods.push(WatchedPeriod {
            from_ns: begin,
            to_ns: begin + hours,
            recorder_ns: hours,
            watched_ns: hours - 600 * SECOND,
            interval_ns: 50_000_000,
            programs: watched.collect(),
            ..WatchedPeriod::default()
        });
        let is_new = day >= self.update;
        let factor = self.rate * if is_new { 1.2 } else { 1.0 };
        for _ in 0..scaled(u64::from(fleet.hangs), factor) {
            let kind = skewed(&mut self.random, self.programs.len());
            // After its update Files hangs four times as often.
            let is_files = self.random.f64() < if is_new { 0.2 } else { 0.06 };
            let program = if is_files { 1 } else { self.programs[kind] };
            let program = if program == 1 && !is_files { 0 } else { program };
            let started_ns = begin + self.random.u64(0..hours);
            let hang = self.hang(fleet, program, started_ns);
            stored.hangs.insert(hang.number, hang);
        }
    }

    fn hang(&mut self, fleet: &FleetPlan, program: usize, started_ns: u64) -> Hang {
        let number = self.next;
        self.next += 1;
        let of_program = &fleet.stacks[program];
        let frames = of_program[skewed(&mut self.random, of_program.len())].clone();
        let cause = HangCause::ALL[1 + skewed(&mut self.random, HangCause::ALL.len() - 1)];
        let is_disk = matches!(
            cause,
            HangCause::Sync | HangCause::FileData | HangCause::FileNames | HangCause::PageFault
        );
        let slow = if is_disk && self.model == 3 { 3.0 } else { 1.0 };
        let length_ns = 100_000_000 + scaled(180_000_000, spread(&mut self.random) * slow);
        let processor_ns = self.random.u64(0..length_ns / 3);
        let ready_ns = self.random.u64(0..length_ns / 20);
        let unknown_ns = self.random.u64(0..length_ns / 50);
        let rest = length_ns - processor_ns - ready_ns - unknown_ns;
        let mut parts = TimeParts { processor_ns, ready_ns, unknown_ns, ..TimeParts::default() };
        match cause {
            HangCause::Computing => parts.processor_ns += rest,
            HangCause::ProcessorQueue => parts.ready_ns += rest,
            HangCause::PageFault => parts.fault_ns = rest,
            HangCause::Lock => parts.lock_ns = rest,
            HangCause::Stopped => parts.stopped_ns = rest,
            _ => parts.call_ns = rest,
        }
        let calls = (0..self.random.usize(0..4)).map(|at| self.call(cause, rest >> at)).collect();
        let blamed = self.random.u32(0..u32::try_from(frames.len()).unwrap_or(1).min(4));
        let blamed = self.random.u32(0..10).checked_sub(1).map(|_| blamed);
        let process = self.random.u32(1000..200_000);
        // A stack is blamed the same each time.
        let blamed = blamed.map(|_| u32::try_from(frames.len() % 4).unwrap_or(0));
        Hang {
            number,
            started_ns,
            length_ns,
            uncertain_ns: self.random.u64(5_000_000..15_000_000),
            goes_on: false,
            process,
            process_began_ns: 0,
            program: PROGRAMS[program].to_owned(),
            unit: format!("app-{}-{}.scope", PROGRAMS[program], self.random.u32(1000..1020)),
            cause,
            parts,
            calls,
            frames,
            blamed,
            pressure: Some(
                [0, 1, 2].map(|_| u16::try_from(skewed(&mut self.random, 4000)).unwrap_or(0)),
            ),
            unseen: UnseenParts(if self.random.u32(0..20) == 0 { 2 } else { 0 }),
            chain: self.chain(cause, process, rest),
            disk_use: is_disk.then(|| self.disk_use(rest)),
            kernel_functions: Vec::new(),
        }
    }

    /// Returns whom a wait of this cause was for, as it is followed in most of them.
    fn chain(&mut self, cause: HangCause, process: u32, waited_ns: u64) -> Option<HangChain> {
        let waits = [HangCause::OtherProgram, HangCause::Lock, HangCause::Child];
        if !waits.contains(&cause) || self.random.u32(0..10) == 0 {
            return None;
        }
        let hop = |program: String, process, call: &str, waited_ns| HangHop {
            unit: format!("{program}.service"),
            program,
            process,
            call: call.to_owned(),
            function: String::new(),
            waited_ns,
        };
        let mut hops = vec![hop("itself".to_owned(), process, "poll", waited_ns)];
        for _ in 0..self.random.usize(1..3) {
            let waited_ns = scaled(waited_ns, self.random.f64());
            let call = ["read", "fsync"][skewed(&mut self.random, 2)];
            hops.push(hop(self.one_of(&PEERS), 999, call, waited_ns));
        }
        let end = self.one_of(&["disk", "processor", "timer", "several"]);
        Some(HangChain { hops, end, end_ns: waited_ns, has_losses: false })
    }

    fn disk_use(&mut self, counted_ns: u64) -> DiskUse {
        let mut bytes = || scaled(1 << 20, spread(&mut self.random));
        let (read_bytes, written_bytes, of_one) = (bytes(), bytes(), bytes());
        let program = self.one_of(&PROGRAMS);
        let user = DiskUser { program, process: 4711, read_bytes: of_one, written_bytes: 0 };
        DiskUse {
            counted_ns,
            read_bytes,
            written_bytes,
            programs: vec![user],
            ..DiskUse::default()
        }
    }

    fn call(&mut self, cause: HangCause, blocked_ns: u64) -> CallShare {
        let (call, kind) = match cause {
            HangCause::Sync => ("fsync", ObjectKind::File),
            HangCause::FileNames => ("openat", ObjectKind::File),
            HangCause::OtherProgram => ("poll", ObjectKind::Socket),
            HangCause::Lock => ("futex", ObjectKind::Lock),
            HangCause::Child => ("wait4", ObjectKind::Child),
            _ => ("read", ObjectKind::File),
        };
        let (name, file_system, device) = match kind {
            ObjectKind::File if self.random.u32(0..3) == 0 => {
                let file =
                    format!("/usr/share/icons/Adwaita/{}.svg", skewed(&mut self.random, 3000));
                (file, "ext4", "nvme0n1p2")
            }
            ObjectKind::File => {
                let name = self.one_of(&FILES);
                let file = format!("/home/user{}/{name}", self.number);
                (file, "ext4", "nvme0n1p2")
            }
            ObjectKind::Socket => (self.one_of(&PEERS), "", ""),
            ObjectKind::Child => ("sh".to_owned(), "", ""),
            _ => (String::new(), "", ""),
        };
        let blocked_ns = scaled(blocked_ns, self.random.f64());
        CallShare {
            call: call.to_owned(),
            blocked_ns,
            seen: self.random.u32(1..40),
            object: (kind != ObjectKind::Lock).then(|| CallObject {
                kind,
                name,
                file_system: file_system.to_owned(),
                device: device.to_owned(),
            }),
        }
    }

    /// Returns what its daily exports say of it.
    pub(super) fn facts(&self, fleet: &FleetPlan) -> Vec<Fact> {
        let mut facts = Vec::new();
        for day in 0..fleet.days {
            let seen_ns = BEGIN_NS + u64::from(day) * DAY + 6 * 3600 * SECOND;
            let files = if day >= self.update { "44.0-1" } else { "43.2-1" };
            let kernel = if day >= fleet.days / 2 { "6.18.2" } else { "6.18.1" };
            let all = [
                ("system", "debian 12"),
                ("kernel", kernel),
                ("nautilus", files),
                ("disk:nvme0n1p2", MODELS[self.model]),
            ];
            facts.extend(all.map(|(name, value)| Fact {
                seen_ns,
                name: name.to_owned(),
                value: value.to_owned(),
            }));
        }
        facts
    }
}
