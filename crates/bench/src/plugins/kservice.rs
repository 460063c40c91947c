//! KDE's side: a small program of ours that asks KService and KPluginMetaData, compiled here.

use std::path::PathBuf;
use std::process::{Command, Output};

use super::world::create;
use super::{Lab, cannot};
use crate::lab::BenchError;

const SOURCE: &str = include_str!("../../peers/kservice.cpp");
/// Where KDE Frameworks 5 installs headers; it has no files for `pkg-config`.
const INCLUDES: [&str; 4] = [
    "-I/usr/include/KF5/KService",
    "-I/usr/include/KF5/KCoreAddons",
    "-I/usr/include/KF5/KConfigCore",
    "-I/usr/include/KF5",
];
const LIBRARIES: [&str; 3] = ["-lKF5Service", "-lKF5CoreAddons", "-lKF5ConfigCore"];

/// Returns the program, compiled once.
pub(super) fn program(lab: &Lab<'_>) -> Result<PathBuf, BenchError> {
    let program = lab.world.at("kservice");
    if program.exists() {
        return Ok(program);
    }
    let source = lab.world.at("kservice.cpp");
    if !source.exists() {
        create(&source, SOURCE.as_bytes()).map_err(|error| cannot(&source, error))?;
    }
    let needs =
        "pkg-config Qt5Core (packages qtbase5-dev, libkf5service-dev, libkf5coreaddons-dev)";
    let flags = Command::new("pkg-config").args(["--cflags", "--libs", "Qt5Core"]).output();
    let flags = succeeded(needs, flags.map_err(|error| cannot(needs, error))?)?;
    let output = Command::new("g++")
        .args(["-O2", "-std=c++17", "-fPIC", "-w", "-o"])
        .args([&program, &source])
        .args(INCLUDES)
        .args(LIBRARIES)
        .args(flags.split_ascii_whitespace())
        .output();
    succeeded("g++", output.map_err(|error| cannot("g++", error))?)?;
    Ok(program)
}

/// Returns what a program printed, or what was wrong.
pub(super) fn succeeded(program: &str, output: Output) -> Result<String, BenchError> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(cannot(program, format!("{}: {said}", output.status)))
}
