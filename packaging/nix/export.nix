# nix-build -E 'with import <nixpkgs> { }; callPackage ./packaging/nix/export.nix { }'
# unjank-export is in a workspace of its own, with its own Cargo.lock.
{ lib, rustPlatform, python3 }:

rustPlatform.buildRustPackage {
  pname = "unjank-export";
  version = (lib.importTOML ../../fleet/Cargo.toml).package.version;
  src = lib.cleanSource ../..;
  cargoRoot = "fleet";
  buildAndTestSubdir = "fleet";
  cargoLock.lockFile = ../../fleet/Cargo.lock;

  nativeBuildInputs = [ python3 ];
  cargoBuildFlags = [ "--bin" "unjank-export" ];
  # The tests run beside DuckDB and a Collector: fleet/check.
  doCheck = false;

  # The same table as of every other package: packaging/files.export.
  installPhase = ''
    runHook preInstall
    from=$(dirname "$(find . -path '*/release/unjank-export' -type f | head -n 1)")
    packaging/stage --from "$from" --prefix "$out" --package unjank-export --dest /
    runHook postInstall
  '';

  meta = {
    description = "Exports of hangs that unjank recorded: Parquet, OpenTelemetry, OpenMetrics";
    license = with lib.licenses; [ mit asl20 ];
    mainProgram = "unjank-export";
    platforms = lib.platforms.linux;
  };
}
