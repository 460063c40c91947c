//! What holds for every value and every sequence of bytes, with no other implementation at hand.
#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use proptest::collection::vec;
use proptest::prelude::*;
use unjank_gvdb::ByteOrder;
use unjank_gvdb::gvariant::{Type, Variant, VariantView, decode_changes, encode_changes};

/// Returns any value; doubles are ones that a text can hold.
fn values() -> impl Strategy<Value = Variant> {
    let basic = prop_oneof![
        any::<bool>().prop_map(Variant::from),
        any::<u8>().prop_map(Variant::from),
        any::<i16>().prop_map(Variant::from),
        any::<u16>().prop_map(Variant::from),
        any::<i32>().prop_map(Variant::from),
        any::<u32>().prop_map(Variant::from),
        any::<i64>().prop_map(Variant::from),
        any::<u64>().prop_map(Variant::from),
        any::<i32>().prop_map(Variant::handle),
        (proptest::num::f64::NORMAL | proptest::num::f64::ZERO | proptest::num::f64::INFINITE)
            .prop_map(Variant::from),
        any::<String>().prop_map(Variant::from),
        vec(any::<u8>(), 0..20).prop_map(|bytes| Variant::from(&bytes[..])),
        vec(any::<u8>(), 0..20).prop_map(|bytes| Variant::bytestring(&bytes)),
        "(/[a-z0-9_]{1,3}){1,3}".prop_map(|path| Variant::object_path(&path).unwrap()),
        "(a?[biuxs]){0,4}".prop_map(|signature| Variant::signature(&signature).unwrap()),
    ];
    basic.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            inner.clone().prop_map(|value| value.boxed()),
            inner.clone().prop_map(|value| Variant::just(&value).unwrap()),
            inner.clone().prop_map(|value| Variant::nothing(value.view().ty()).unwrap()),
            vec(inner.clone(), 0..5).prop_map(|values| Variant::tuple(values).unwrap()),
            (inner.clone(), 0..4_usize).prop_map(|(value, count)| {
                Variant::array(value.view().ty(), vec![&value; count]).unwrap()
            }),
            vec((any::<String>(), inner), 1..4).prop_map(|entries| {
                let entries: Vec<Variant> = entries
                    .into_iter()
                    .map(|(key, value)| Variant::entry(&key.into(), &value.boxed()).unwrap())
                    .collect();
                Variant::array(entries[0].view().ty(), &entries).unwrap()
            }),
        ]
    })
}

fn types() -> impl Strategy<Value = String> {
    values().prop_map(|value| value.view().ty().as_str().to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_printed_value_parses_as_itself(value in values()) {
        prop_assert_eq!(&Variant::parse(None, &value.print()).unwrap(), &value);
        let ty = Some(value.view().ty());
        prop_assert_eq!(Variant::parse(ty, &value.print_without_types()).unwrap(), value);
    }

    #[test]
    fn a_built_value_is_in_normal_form(value in values()) {
        prop_assert!(value.view().is_normal());
        prop_assert_eq!(value.view().to_variant(), value);
    }

    #[test]
    fn any_bytes_have_one_normal_form(ty in types(), bytes in vec(0..20_u8, 0..60)) {
        let ty = Type::parse(&ty).unwrap();
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let view = VariantView::new(ty, &bytes, order);
            let value = view.to_variant();
            prop_assert!(value.view().is_normal());
            prop_assert_eq!(value.view().ty(), ty);
            prop_assert_eq!(&value.view().to_variant(), &value);
            if view.is_normal() && order == ByteOrder::NATIVE {
                prop_assert_eq!(value.view().bytes(), &bytes[..]);
            }
        }
    }

    #[test]
    fn values_in_the_other_byte_order_come_back(value in values()) {
        let view = value.view();
        let swapped = match ByteOrder::NATIVE {
            ByteOrder::Little => VariantView::new(view.ty(), view.bytes(), ByteOrder::Big).to_variant(),
            ByteOrder::Big => VariantView::new(view.ty(), view.bytes(), ByteOrder::Little).to_variant(),
        };
        let order = match ByteOrder::NATIVE {
            ByteOrder::Little => ByteOrder::Big,
            ByteOrder::Big => ByteOrder::Little,
        };
        prop_assert_eq!(VariantView::new(view.ty(), swapped.view().bytes(), order).to_variant(), value);
    }

    #[test]
    fn children_are_the_same_by_index_and_in_order(value in values()) {
        let view = value.view();
        let children: Vec<Variant> = view.children().map(VariantView::to_variant).collect();
        prop_assert_eq!(view.len(), children.len());
        for (index, child) in children.iter().enumerate() {
            prop_assert_eq!(&view.child(index).unwrap().to_variant(), child);
        }
        prop_assert!(view.child(children.len()).is_none());
    }

    #[test]
    fn changes_survive_the_way_there_and_back(
        changes in vec(("(/[a-z]{1,3}){1,3}/?", proptest::option::of(values())), 0..8),
    ) {
        let blob =
            encode_changes(changes.iter().map(|(path, value)| (path.as_str(), value.as_ref())));
        let read = decode_changes(&blob);
        prop_assert_eq!(read.len(), changes.len());
        for ((path, value), (expected_path, expected)) in read.iter().zip(&changes) {
            prop_assert_eq!(&**path, expected_path.as_str());
            prop_assert_eq!(value, expected);
        }
    }
}
