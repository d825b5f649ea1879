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
