use super::*;

fn heard(lines: &[&str]) -> Result<Program> {
    let (mut program, signals) = (Program::new(2), Signals::default());
    lines.iter().try_for_each(|line| program.hear(line, &signals))?;
    Ok(program)
}

#[test]
fn a_sum_is_zlibs() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
}

#[test]
fn what_a_program_says_is_believed_in_its_order() {
    let said = ["b write file-1.0 0 3 2", "d", "b fsync file-1.0", "d", "b rename file-1.0", "d"];
    let program = heard(&said).expect("it makes sense");
    assert_eq!((program.synced, program.files[1].number), (1, 1));
    assert_eq!(program.files[1].content, b"000");
    let sum = crc32(b"00").to_string();
    let read = ["b read file-1.1 1 9", &format!("d 2 {sum}")];
    heard(&[&said[..], &read].concat()).map(drop).expect("it read what it wrote");
    let short = ["b read file-1.1 1 9", &format!("d 1 {sum}")];
    heard(&[&said[..], &short].concat()).map(drop).expect_err("it read something else");
    for odd in ["d", "b burn file-1.0", "b write file-1.0 0 3", "x", "", "é"] {
        heard(&[odd]).map(drop).expect_err(odd);
    }
    let Failed(why) = heard(&["b fsync file-1.0", "e 107"]).map(drop).expect_err("it ended");
    assert_eq!(why, GONE);
}

/// The lines of a program whose first write takes a part only, and whose second does what `then`
/// does.
fn said_behind_a_short_write(then: &str) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let short = format!(
        "import os\n\
         write, seen = os.write, []\n\
         def short(fd, data, *at):\n    \
             if fd == 1: return write(fd, data)\n    \
             seen.append(data)\n    \
             return len(data) // 2 if len(seen) == 1 else {then}\n\
         os.write = os.pwrite = short\n"
    );
    let mut child = Command::new("python3")
        .args(["-c", &[&short, PROGRAM].concat()])
        .arg(dir.path())
        .args(["1", "log", "file-0.0=0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    // It ends well when its input does.
    let input = child.stdin.take();
    let out = child.wait_with_output().expect("python3");
    drop(input);
    String::from_utf8(out.stdout).expect("text").lines().map(String::from).collect()
}

/// A write across a page's end whose host dies between the two parts is short: the death is what
/// the program must say.
#[test]
fn a_short_write_asks_why() {
    let refused = said_behind_a_short_write("os.close(1234567)");
    assert_eq!(refused.last().map(String::as_str), Some("e 9"), "{refused:?}");
    let taken = said_behind_a_short_write("len(data)");
    assert!(taken.last().is_some_and(|line| line.starts_with("x ")), "{taken:?}");
}
