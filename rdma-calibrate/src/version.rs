/// The version of the conversation: sides of different versions part at once
pub const VERSION: u64 = 7;
