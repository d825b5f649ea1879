//! The shared library's own name: programs that were linked with it ask for this one.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsiftfs.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
