use proptest::prelude::*;

use super::*;
use crate::limits::MAX_BLOCK;
use crate::protocol::head::{DATA, DataHead, Head, check, data_head, head, sum, write_data_head};

fn read(bytes: &[u8]) -> Result<Message, ProtocolError> {
    let (first, rest) = bytes.split_first_chunk().unwrap();
    match head(*first)? {
        Head::Body { kind, len } => {
            assert_eq!(len, rest.len());
            let mut all = sum(first);
            all.update(rest);
            check(first, &all)?;
            Message::read(kind, rest)
        }
        Head::Data { .. } => panic!("no data here"),
    }
}

fn ack() -> impl Strategy<Value = Ack> {
    let steps = proptest::collection::vec((1_u64..1000, 1_u64..1000), 0..MAX_RANGES);
    (0..u64::MAX / 2, any::<u64>(), any::<u64>(), steps).prop_map(
        |(next, credit_bytes, credit_blocks, steps)| {
            let mut at = next;
            let ranges = steps
                .into_iter()
                .map(|(gap, len)| {
                    let first = at + gap;
                    at = first + len;
                    (first, at)
                })
                .collect();
            Ack { next, credit_bytes, credit_blocks, ranges }
        },
    )
}

fn message() -> impl Strategy<Value = Message> {
    let hello = (
        (0_u16..5, 0_u16..5, any::<u64>(), any::<[u8; 16]>(), any::<u16>()),
        (any::<Option<[u8; 32]>>(), any::<[u8; 32]>()),
        proptest::collection::vec(any::<u8>(), 0..100),
    )
        .prop_map(|((min, more, capabilities, transfer, connection), (key, proof), offer)| {
            Message::Hello(Box::new(Hello {
                min_version: min,
                max_version: min + more,
                capabilities,
                transfer,
                connection,
                offer: if key.is_some() { offer } else { Vec::new() },
                key: key.map(Zeroizing::new),
                proof,
            }))
        });
    let welcome = (any::<u16>(), any::<u64>(), any::<[u8; 32]>(), ack()).prop_map(
        |(connections, capabilities, proof, have)| {
            Message::Welcome(Welcome { version: 1, connections, capabilities, proof, have })
        },
    );
    let code = (1_u16..8).prop_map(StopCode::from_number);
    prop_oneof![
        hello,
        welcome,
        proptest::collection::vec(any::<u8>(), 0..100).prop_map(Message::Answer),
        ack().prop_map(Message::Ack),
        any::<(u64, u64)>().prop_map(|(blocks, bytes)| Message::Fin { blocks, bytes }),
        Just(Message::Confirm),
        Just(Message::Bye),
        (code, "\\PC{0,40}").prop_map(|(code, reason)| Message::Stop(StopMessage { code, reason })),
        any::<u64>().prop_map(Message::Ping),
        any::<u64>().prop_map(Message::Pong),
        (any::<u64>(), proptest::collection::vec(any::<u8>(), 1..100))
            .prop_map(|(number, question)| Message::Ask { number, question }),
        (any::<u64>(), proptest::collection::vec(any::<u8>(), 0..MAX_REPLY))
            .prop_map(|(number, reply)| Message::Reply { number, reply }),
    ]
}

proptest! {
    #[test]
    fn written_messages_are_read(message in message()) {
        prop_assert_eq!(read(&message.write()), Ok(message));
    }

    #[test]
    fn data_heads_too(number: u64, offset: u64, len in 1..=MAX_BLOCK, summed: bool, again: bool) {
        let block = DataHead { number, offset, len, summed, again };
        let bytes = write_data_head(&block, [&b"payload"[..]]);
        let (first, rest) = bytes.split_first_chunk().unwrap();
        prop_assert_eq!(head(*first), Ok(Head::Data { len, summed, again }));
        prop_assert_eq!(data_head(rest.try_into().unwrap(), len, summed, again), Ok(block));
        let mut all = sum(first);
        all.update(rest);
        if summed {
            prop_assert_eq!(check(first, &all), Err(ProtocolError::Damaged { kind: DATA }));
            all.update(b"payload");
        }
        prop_assert_eq!(check(first, &all), Ok(()));
    }

    #[test]
    fn a_flipped_bit_is_found(message in message(), at: prop::sample::Index, bit in 0_u8..8) {
        let mut bytes = message.write();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let (first, rest) = bytes.split_first_chunk().unwrap();
        match head(*first) {
            Ok(Head::Body { len, .. }) if len == rest.len() => {
                prop_assert!(read(&bytes).is_err());
            }
            // The length has changed, so the next message would be read at the wrong offset.
            _ => {}
        }
    }

    #[test]
    fn no_bytes_panic_and_one_form_each(kind in 0_u8..15, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(message) = Message::read(kind, &body) {
            // Text that is not valid UTF-8 does not survive the round trip, and a reply whose length the head refuses.
            let is_long = matches!(&message, Message::Reply { reply, .. } if reply.len() > MAX_REPLY);
            if !matches!(message, Message::Stop(_)) && !is_long {
                prop_assert_eq!(&message.write()[HEAD_LEN..], &body[..]);
            }
        }
    }

    #[test]
    fn damaged_messages_do_not_panic(message in message(), at: prop::sample::Index, with: u8) {
        let mut bytes = message.write();
        let at = at.index(bytes.len());
        bytes[at] = with;
        let (first, rest) = bytes.split_first_chunk().unwrap();
        if let Ok(Head::Body { kind, len }) = head(*first) {
            let _ = Message::read(kind, rest.get(..len).unwrap_or(rest));
        }
    }
}

#[test]
fn lengths_are_checked_before_they_count() {
    let with = |kind: u8, len: u32| {
        let [a, b, c, d] = len.to_le_bytes();
        head([kind, 0, 0, 0, a, b, c, d, 0, 0, 0, 0])
    };
    for kind in 0..=255 {
        assert!(with(kind, u32::MAX).is_err(), "{kind}");
    }
    assert_eq!(with(DATA, 16), Err(ProtocolError::Length { kind: DATA, len: 16 }));
    assert_eq!(
        with(DATA, 16 + MAX_BLOCK),
        Ok(Head::Data { len: MAX_BLOCK, summed: false, again: false })
    );
    assert!(with(DATA, 17 + MAX_BLOCK).is_err());
    assert!(with(0, 0).is_err() && with(14, 0).is_err());
    // A question has a byte, a reply need not have one.
    assert!(with(12, 8).is_err() && with(12, 9).is_ok() && with(13, 8).is_ok());
    assert!(with(12, 8 + 4096).is_ok() && with(12, 9 + 4096).is_err());
    assert!(with(13, 8 + 64).is_ok() && with(13, 9 + 64).is_err());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that another implementation has made from docs/spec/wire.md.
#[test]
fn messages_have_the_bytes_of_the_specification() {
    let ack =
        || Ack { next: 3, credit_bytes: 9 << 20, credit_blocks: 70, ranges: vec![(5, 6), (8, 9)] };
    let of_ack = "03000000000000000000900000000000460000000000000002000500000000000000060000000000000008000000000000000900000000000000";
    let (nines, eights) = ("09".repeat(32), "08".repeat(32));
    let hello = Hello {
        min_version: 1,
        max_version: 2,
        capabilities: 0,
        transfer: [7; 16],
        connection: 0,
        key: Some(Zeroizing::new([9; 32])),
        proof: [8; 32],
        offer: b"an offer".to_vec(),
    };
    let welcome =
        Welcome { version: 2, connections: 4, capabilities: 0, proof: [1; 32], have: ack() };
    let expected = [
        (Message::Ack(ack()), format!("050000003a000000b5e2fbb3{of_ack}")),
        (
            Message::Ask { number: 3, question: b"question".to_vec() },
            "0c00000010000000bd7fa0c103000000000000007175657374696f6e".into(),
        ),
        (
            Message::Reply { number: 3, reply: b"reply".to_vec() },
            "0d0000000d00000076268f1a03000000000000007265706c79".into(),
        ),
        (
            Message::Fin { blocks: 3, bytes: 300 },
            "06000000100000000fb7b97803000000000000002c01000000000000".into(),
        ),
        (
            Message::Welcome(welcome),
            format!("02000000660000008bb8eb17020004000000000000000000{}{of_ack}", "01".repeat(32)),
        ),
        (
            Message::Hello(Box::new(hello)),
            format!(
                "010000006800000031d41f21010002000000000000000000{}00000100{nines}{eights}616e206f66666572",
                "07".repeat(16)
            ),
        ),
    ];
    for (message, bytes) in expected {
        assert_eq!(hex(&message.write()), bytes, "{message:?}");
    }
    for (summed, again, head) in [
        (false, false, "0400000017000000d182018d"),
        (true, false, "0401000017000000b2becf67"),
        (false, true, "0402000017000000a162a666"),
        (true, true, "0403000017000000a03cb94c"),
    ] {
        let block = DataHead { number: 3, offset: 300, len: 7, summed, again };
        let bytes = hex(&write_data_head(&block, [&b"payload"[..]]));
        assert_eq!(bytes, format!("{head}03000000000000002c01000000000000"), "{block:?}");
    }
}
