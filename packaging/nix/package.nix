# nix-build -E 'with import <nixpkgs> { }; callPackage ./packaging/nix/package.nix { }'
{ lib, rustPlatform, glib, gobject-introspection, lowdown, pkg-config, python3 }:

rustPlatform.buildRustPackage {
  pname = "unjank";
  version = (lib.importTOML ../../Cargo.toml).workspace.package.version;
  src = lib.cleanSource ../..;
  cargoLock.lockFile = ../../Cargo.lock;

  nativeBuildInputs = [ gobject-introspection lowdown pkg-config python3 ];
  buildInputs = [ glib ];
  cargoBuildFlags = [ "-p" "unjank" "-p" "unjank-capi" "-p" "unjank-gio" ];
  buildType = "dist";
  # The small program is linked with the static libraries of glibc: the Rust of nixpkgs has no other library for this system.
  # The tests run beside real desktops: ci/check.
  doCheck = false;

  # The same table as of every other package: packaging/files. On NixOS, services.dbus.packages chooses which D-Bus files count.
  installPhase = ''
    runHook preInstall
    from=$(dirname "$(find target -path '*/dist/unjank' -type f | head -n 1)")
    crates/capi/gir/build "$from/libunjank.so" "$from"
    for name in unjank unjank-bench unjank-session unjank-dconf-service unjank-host-service unjank-gsettings-backend libunjank0 libunjank-dev libunjank-gi0 gir1.2-unjank-0 libunjank-gi-dev python3-unjank; do
      packaging/stage --from "$from" --prefix "$out" --python "$out/${python3.sitePackages}" --package $name --dest /
    done
    runHook postInstall
  '';

  meta = {
    description = "Keeps the disk off a desktop's critical path";
    license = with lib.licenses; [ mit asl20 ];
    mainProgram = "unjank";
    platforms = lib.platforms.linux;
  };
}
