const CASES: u64 = 400;
