#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hotcount_fuzz::unpack(data));
