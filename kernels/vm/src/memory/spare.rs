//! Pages kept from one set of buffers to the next. Invariant: what is kept takes at most
//! [`KEPT_BYTES`], records of races included, however many buffers came and went and however large.

use super::Page;

/// What all kept pages may take.
pub(crate) const KEPT_BYTES: usize = 32 << 20;
/// What one may: a larger one costs little to make anew beside what a launch does with it, and would
/// stand where many small ones could.
const KEPT_PAGE_BYTES: usize = 2 << 20;

/// Pages without a buffer.
#[derive(Default)]
pub(crate) struct Spare {
    pages: Vec<Page>,
    bytes: usize,
}

impl Spare {
    /// A page of any length and contents.
    pub fn take(&mut self) -> Page {
        let page = self.pages.pop().unwrap_or_default();
        self.bytes -= page.kept_bytes();
        page
    }

    /// Keeps a page, where there is room for it.
    pub fn put(&mut self, page: Page) {
        let bytes = page.kept_bytes();
        if bytes <= KEPT_PAGE_BYTES && self.bytes + bytes <= KEPT_BYTES {
            self.bytes += bytes;
            self.pages.push(page);
        }
    }

    /// What the kept pages take.
    #[cfg(test)]
    pub fn kept_bytes(&self) -> usize {
        self.bytes
    }

    /// Drops what the pages record of accesses.
    pub fn forget_accesses(&mut self) {
        for page in &mut self.pages {
            page.shadow.forget();
        }
        self.bytes = self.pages.iter().map(Page::kept_bytes).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(len: usize) -> Page {
        Page { data: vec![0; len], marks: vec![0; len], ..Page::default() }
    }

    #[test]
    fn small_pages_come_back_and_large_ones_do_not() {
        let mut spare = Spare::default();
        spare.put(page(KEPT_PAGE_BYTES / 2));
        assert_eq!(spare.kept_bytes(), KEPT_PAGE_BYTES);
        spare.put(page(KEPT_PAGE_BYTES / 2 + 1));
        assert_eq!(spare.kept_bytes(), KEPT_PAGE_BYTES);
        assert_eq!(spare.take().data.len(), KEPT_PAGE_BYTES / 2);
        assert_eq!((spare.kept_bytes(), spare.take().data.len()), (0, 0));
    }

    #[test]
    fn no_number_of_pages_takes_more_than_the_limit() {
        let mut spare = Spare::default();
        let len = KEPT_PAGE_BYTES / 4;
        (0..200).for_each(|_| spare.put(page(len)));
        assert_eq!(spare.kept_bytes(), KEPT_BYTES);
        drop(spare.take());
        spare.put(page(len));
        assert_eq!(spare.kept_bytes(), KEPT_BYTES);
    }

    #[test]
    fn records_count_until_they_are_forgotten() {
        let mut spare = Spare::default();
        let mut recorded = page(1024);
        recorded.shadow.cover(1024);
        let with_records = recorded.kept_bytes();
        assert!(with_records >= 5 * 1024, "{with_records}");
        spare.put(recorded);
        assert_eq!(spare.kept_bytes(), with_records);
        spare.forget_accesses();
        assert_eq!(spare.kept_bytes(), 2048);
        drop(spare.take());
        assert_eq!(spare.kept_bytes(), 0);
    }
}
