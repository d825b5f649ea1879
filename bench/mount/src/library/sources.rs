//! A small C program of many files, such as a library's.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

/// Its files, without that of `main` and the header.
pub const FILES: usize = 24;
/// Functions of each file.
const FUNCTIONS: usize = 12;

/// How each file is compiled, and then the whole is linked, by sh(1) in their directory. What it
/// prints at last comes from the program itself.
pub const BUILD: &str = "set -e; for source in part-*.c main.c; do cc -O1 -c \"$source\"; done; \
                         cc -o program *.o; ./program";

/// Writes them into a directory that is there.
pub fn write(dir: &Path) -> io::Result<()> {
    let mut header = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
    let mut sum = String::new();
    for file in 0..FILES {
        let mut text = String::from("#include \"all.h\"\n");
        for function in 0..FUNCTIONS {
            let _ = write!(text, "{}", body(file, function));
        }
        fs::write(dir.join(format!("part-{file:02}.c")), text)?;
        let _ = writeln!(header, "int part_{file}_0(int n);");
        let _ = write!(sum, " + part_{file}_0(1)");
    }
    fs::write(dir.join("all.h"), header)?;
    let main = format!(
        "#include \"all.h\"\nint main(void) {{\n    printf(\"%d\\n\", 0{sum});\n    return 0;\n}}\n"
    );
    fs::write(dir.join("main.c"), main)
}

/// Each function of a file answers 1 for `n` = 1, by way of strings and a buffer.
fn body(file: usize, function: usize) -> String {
    format!(
        "int part_{file}_{function}(int n) {{\n    \
             char text[64];\n    \
             char *copy = malloc(sizeof text);\n    \
             if (copy == NULL)\n        return -1;\n    \
             snprintf(text, sizeof text, \"%d of {file}.{function}\", n);\n    \
             memcpy(copy, text, sizeof text);\n    \
             int same = strcmp(copy, text) == 0 ? atoi(copy) : 0;\n    \
             for (int i = {function}; i > 0; i--)\n        same = same * (i % 7 + 1) / (i % 7 + 1);\n    \
             free(copy);\n    \
             return same;\n}}\n"
    )
}

#[cfg(test)]
#[path = "sources_tests.rs"]
mod tests;
