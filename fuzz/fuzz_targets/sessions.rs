#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rdma_tests::fuzz::sessions(data));
