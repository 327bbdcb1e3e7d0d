//! Pairs of trees and what a review says of them: one file a pair under `pairs`, edits to the tree in
//! `base`. What class which clause must get stands in the file; the words are snapshots.
//! `INSTA_UPDATE=always` writes those anew.

mod cases;
mod comment;
mod golden;
mod judges;
mod refusals;
mod trees;
mod words;
