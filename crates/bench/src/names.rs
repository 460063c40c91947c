//! What benchmarks and their sides are called, and what their figures need.

/// What a benchmark and its sides are called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BenchNames {
    /// The benchmark: `settings`.
    pub bench: &'static str,
    /// Our side.
    pub ours: &'static str,
    /// The side that is compared with.
    pub peer: &'static str,
    /// What stands under the picture of all ratios.
    pub caption: &'static str,
}

/// The terms of most benchmarks: two programs that do the same.
pub const SETTINGS: BenchNames = BenchNames {
    bench: "settings",
    ours: "ours",
    peer: "peer",
    caption: "How many times better than the peer, by medians: a dot for what was reached, an upright stroke for what was promised. Less is better for times and sizes, more for rates.",
};

/// The terms where one program runs twice: traced and by itself.
pub(crate) const TRACE: BenchNames = BenchNames {
    bench: "trace",
    ours: "traced",
    peer: "untraced",
    caption: "How fast a traced program is beside itself untraced, by medians: a dot for what was reached, an upright stroke for what was promised. Further right is better; 1 is as fast as untraced.",
};

/// The terms of listing: the peer is the bare calls, a program, or what was promised.
pub(crate) const LISTING: BenchNames = BenchNames { bench: "listing", ..SETTINGS };

/// The terms of host commands: the peer is another service, or the command by itself.
pub const HOST: BenchNames = BenchNames { bench: "host", ..SETTINGS };

/// The terms of plugins and applications: the peer is KDE's cache, Qt's own search or GLib.
pub const PLUGINS: BenchNames = BenchNames { bench: "plugins", ..SETTINGS };

/// The terms of recording a bus: the peer is another program that does, or nobody.
pub const BUS: BenchNames = BenchNames { bench: "bus", ..SETTINGS };

/// The terms of recent documents: the peers are KDE's and GTK's own classes.
pub(crate) const RECENTS: BenchNames = BenchNames { bench: "recents", ..SETTINGS };

/// The terms of hangs: beside the recorder, a program by itself or under another recorder.
pub const HANGS: BenchNames = BenchNames {
    bench: "hangs",
    ours: "recorder",
    peer: "peer",
    caption: "How fast a program is beside the recorder, by medians, and without it or beside perf: a dot for what was reached, an upright stroke for what was promised. Further right is better; 1 is as fast.",
};

/// The terms of hangs that are planted in programs which are traced: there is no other side.
pub(crate) const TRACED_HANGS: BenchNames = BenchNames {
    ours: "trace",
    caption: "What a trace tells of planted hangs: a dot for what was reached, an upright stroke for what was promised. Further right is better.",
    ..HANGS
};

/// What a figure needs that not everybody has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// The right to drop the kernel's caches.
    Cold,
    /// A program that the user names.
    Peers,
}
