use super::*;

#[test]
fn the_address_belongs_to_another_flag() {
    assert!(Http::connect("http://127.0.0.1:8080").err().expect("refused").to_string().contains("--http ADDR"));
    assert!(Http::connect("http:?deadline_s=0").is_err());
    assert!(Http::connect("http:?speed=1").is_err());
    let http = Http::connect("http:?deadline_s=5").expect("understood");
    assert_eq!(http.max_lease(), Some(Duration::from_secs(5)));
}
