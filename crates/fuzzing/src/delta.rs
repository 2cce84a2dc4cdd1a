//! Delta files of increments, and the text beside them.

use xb_delta::{DeltaReader, Meta};

/// Bytes of a page in the seeds.
const PAGE: usize = 64;

/// Any bytes as a delta file, and as the text beside one. Pages ascend, and no more come than there are bytes for.
pub(crate) fn read(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some(meta) = Meta::parse(&text) {
        assert!(meta.page_size.is_power_of_two() && meta.page_size <= 64 << 10);
    }
    let (mut reader, mut pages, mut before) = (DeltaReader::new(data, PAGE), 0, None);
    while let Ok(Some((number, page))) = reader.next_page() {
        assert!(page.len() == PAGE && before < Some(number));
        (before, pages) = (Some(number), pages + 1);
    }
    assert!(pages * PAGE <= data.len());
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let group = |mark: &[u8], numbers: &[u32]| {
        let mut block = mark.to_vec();
        numbers.iter().for_each(|number| block.extend(number.to_be_bytes()));
        block.resize(PAGE, 0xff);
        block.resize(PAGE * (1 + numbers.len()), 7);
        block
    };
    let full: Vec<u32> = (0..15).collect();
    vec![
        group(b"XTRA", &[]),
        group(b"XTRA", &[0, 3, 9]),
        [group(b"xtra", &full), group(b"XTRA", &[20])].concat(),
        b"page_size = 16384\nzip_size = 0 \nspace_id = 8 \n".to_vec(),
    ]
}
