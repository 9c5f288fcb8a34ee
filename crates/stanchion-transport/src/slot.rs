//! Redis Cluster's hash slots, and a short tag that hashes to a given slot.

/// The number of hash slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// Returns the slot of `key`: CRC16 (XMODEM) of the text between the first `{` and the next `}`, or of the whole key.
#[must_use]
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % SLOTS
}

fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|b| *b == b'{') else {
        return key;
    };
    // Only the first `{` counts: `{}{a}` has no tag.
    let rest = &key[open + 1..];
    match rest.iter().position(|b| *b == b'}') {
        // An empty `{}` is not a tag: the server hashes the whole key.
        Some(len) if len > 0 => &rest[..len],
        _ => key,
    }
}

const fn crc16(bytes: &[u8]) -> u16 {
    // Computed bit by bit, without a table: a name has at most 512 bytes, and the inverse below needs this at compile time.
    let mut crc = 0_u16;
    let mut i = 0;
    while i < bytes.len() {
        crc ^= (bytes[i] as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                // The polynomial of XMODEM, x¹⁶ + x¹² + x⁵ + 1.
                (crc << 1) ^ 0x1021
            };
            bit += 1;
        }
        i += 1;
    }
    crc
}

/// Four characters `@`..`O`. Each carries four free bits.
type Tag = [u8; 4];

const fn spell(bits: u16) -> Tag {
    // Printable characters without a brace, so a tag never ends early.
    [
        0x40 | ((bits >> 12) & 15) as u8,
        0x40 | ((bits >> 8) & 15) as u8,
        0x40 | ((bits >> 4) & 15) as u8,
        0x40 | (bits & 15) as u8,
    ]
}

const BASE: u16 = crc16(&spell(0)) % SLOTS;

/// `INVERSE[b]`: the free bits that flip exactly bit `b` of the slot.
///
/// CRC16 is affine over GF(2) for texts of one length, so the slot is a linear map of the sixteen free bits plus
/// [`BASE`]; Gauss-Jordan elimination inverts it once, at compile time. No table of 16384 tags, no search.
const INVERSE: [u16; 14] = invert();

const fn invert() -> [u16; 14] {
    // Row i: the effect of free bit i on the slot, and the free bits that the row combines.
    let mut effect = [0_u16; 16];
    let mut combined = [0_u16; 16];
    let mut i = 0;
    while i < 16 {
        effect[i] = (crc16(&spell(1 << i)) % SLOTS) ^ BASE;
        combined[i] = 1 << i;
        i += 1;
    }
    // 14 bits need 14 pivots, so two of the 16 rows stay unused.
    let mut used = [false; 16];
    let mut pivots = [0_usize; 14];
    let mut bit = 0;
    while bit < 14 {
        let mut pivot = 16;
        let mut row = 0;
        while row < 16 {
            if pivot == 16 && !used[row] && effect[row] >> bit & 1 == 1 {
                pivot = row;
            }
            row += 1;
        }
        // Checked at compile time: if a tag cannot reach every slot, the build fails.
        assert!(pivot < 16, "four characters of four bits reach every slot");
        used[pivot] = true;
        pivots[bit] = pivot;
        // All other rows, including earlier pivots: in the end each pivot flips only its own bit.
        row = 0;
        while row < 16 {
            if row != pivot && effect[row] >> bit & 1 == 1 {
                effect[row] ^= effect[pivot];
                combined[row] ^= combined[pivot];
            }
            row += 1;
        }
        bit += 1;
    }
    let mut inverse = [0_u16; 14];
    let mut b = 0;
    while b < 14 {
        inverse[b] = combined[pivots[b]];
        b += 1;
    }
    inverse
}

/// Returns a hash tag with the slot `slot`. The tag of a slot is always the same.
///
/// The fence counter of a slot is stored under the tag: at most 16384 small keys, for any number of names.
#[must_use]
pub fn tag_of(slot: u16) -> String {
    // Apart from `BASE` the map is linear, so XOR combines the free bits of the wanted slot bits.
    let wanted = (slot % SLOTS) ^ BASE;
    let bits = (0..14)
        .filter(|b| wanted >> b & 1 == 1)
        .fold(0, |bits, b| bits ^ INVERSE[b]);
    spell(bits).iter().map(|byte| char::from(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn known_slots_of_a_real_server() {
        for (key, expected) in [
            ("a{b", 13340),
            ("{}x", 10595),
            ("a}b", 7866),
            ("{user}:latch", 5474),
            ("foo", 12182),
        ] {
            assert_eq!(slot_of(key.as_bytes()), expected, "{key}");
        }
    }

    #[test]
    fn every_slot_has_its_own_tag_and_the_tag_hashes_to_it() {
        let tags: HashSet<String> = (0..SLOTS)
            .map(|s| {
                let tag = tag_of(s);
                assert_eq!(slot_of(format!("stanchion_fence:{{{tag}}}").as_bytes()), s);
                tag
            })
            .collect();
        assert_eq!(tags.len(), usize::from(SLOTS));
    }
}
