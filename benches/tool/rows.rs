//! Pages that look like those of tables: a header, rows of one length, zeros behind them.

use xb_testkit::data::{Noise, PAGE};

const WORDS: [&str; 48] = [
    "order",
    "invoice",
    "customer",
    "pending",
    "shipped",
    "returned",
    "warehouse",
    "account",
    "the",
    "of",
    "and",
    "to",
    "in",
    "for",
    "was",
    "with",
    "street",
    "city",
    "postcode",
    "currency",
    "amount",
    "balance",
    "created",
    "updated",
    "active",
    "disabled",
    "admin",
    "guest",
    "public",
    "private",
    "product",
    "catalog",
    "price",
    "discount",
    "quantity",
    "subtotal",
    "tracking",
    "reference",
    "comment",
    "category",
    "Helsinki",
    "Lisbon",
    "Oslo",
    "Prague",
    "Vienna",
    "Warsaw",
    "token",
    "session",
];
const LENGTHS: [usize; 6] = [62, 88, 104, 136, 184, 240];
/// Offset of the first row in a page.
const FIRST: usize = 120;

/// Fills `out`, a multiple of the page size, with pages. Thin ones have two rows.
pub(crate) fn fill(draw: &mut Noise, out: &mut [u8], thin: bool) {
    for page in out.chunks_exact_mut(PAGE) {
        let number = draw.next();
        page[..8].copy_from_slice(&number.to_be_bytes());
        page[16..24].copy_from_slice(&(number >> 20).to_be_bytes());
        let len = LENGTHS[index(draw, LENGTHS.len())];
        let filled = if thin { 2 * len } else { PAGE / 2 + index(draw, PAGE / 2 - 400) };
        let key = draw.next() >> 34;
        let rows = page[FIRST..FIRST + filled].chunks_exact_mut(len);
        for (row, key) in rows.zip(key..) {
            fill_row(draw, row, key);
        }
    }
}

fn index(draw: &mut Noise, limit: usize) -> usize {
    usize::try_from(draw.below(limit as u64)).unwrap_or(0)
}

/// A row: a rising key, a transaction, a date, an amount, and words, the first of which are frequent.
fn fill_row(draw: &mut Noise, row: &mut [u8], key: u64) {
    let (transaction, date) = (draw.next(), draw.next());
    row[5..9].copy_from_slice(&key.to_be_bytes()[4..]);
    row[9..15].copy_from_slice(&(0x1_0000_0000 + transaction % 5000).to_be_bytes()[2..]);
    row[15..18].copy_from_slice(&(transaction >> 20).to_be_bytes()[5..]);
    row[22..25].copy_from_slice(&date.to_be_bytes()[5..]);
    let amount = format!("{:07}.{:02}", (date >> 24) % 100_000, (date >> 45) % 100);
    row[25..35].copy_from_slice(amount.as_bytes());
    let mut at = 36;
    while at < row.len() {
        let both = index(draw, WORDS.len()).min(index(draw, WORDS.len()));
        let word = WORDS[both].as_bytes();
        let len = word.len().min(row.len() - at);
        row[at..at + len].copy_from_slice(&word[..len]);
        at += word.len() + 1;
    }
}
