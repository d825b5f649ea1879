use super::*;

#[test]
fn new_names_are_not_wrong_and_other_content_is() {
    let text =
        ">f+++++++++ dir/new\n>fcst...... dir/other\n.d..t...... dir/\n>f..t...... dir/older\n";
    assert_eq!(wrong_content(text), [">fcst...... dir/other"]);
}
