//! Rule R35: each log has a key of its own. What lies in a lane is no record of it if another log's
//! key made it, however well it fits otherwise.

use super::bytes;
use super::record_area::{KIND, prepared};
use siftfs_base::LaneId;
use siftfs_crash::{Back, mem_media};
use siftfs_device::{Cut, Image, OpRecord};
use siftfs_log::{LogKey, RecordBuilder, decode_record};
use siftfs_volume::read_media;

/// The newest record of an image: where it lies, in which lane, and its position there.
struct Newest {
    image: Image,
    op: OpRecord,
    lane: LaneId,
    pos: u64,
}

impl Newest {
    /// The record of an fsync of `big` with this much in it that changed.
    fn of(len: u64) -> Self {
        let b = prepared();
        let heads = || b.status().log.lanes.iter().map(|l| l.head).collect::<Vec<_>>();
        let before = heads();
        let ops = b.log(|b| {
            b.write("big", 0, &bytes(11, len));
            b.fsync("big");
        });
        let lane = before.iter().zip(heads()).position(|(old, new)| *old != new).expect("a record");
        let image = b.device.image(Cut::LoseAll);
        b.stop();
        Self { image, op: ops[0], lane: LaneId(lane as u16), pos: before[lane] }
    }

    /// The image with the same record under `key`, where `own` is the lane's.
    fn forged(&self, own: &LogKey, key: LogKey) -> Image {
        let (lane, len) = (self.lane, self.op.len);
        let record = self.image.bytes(self.op.offset, len);
        let decoded = decode_record(&record, own, lane, self.pos, len as u64);
        let (head, data) = decoded.expect("the lane's own record");
        let mut forged = vec![0; len];
        let builder = RecordBuilder { key, lane };
        let header = &head.header;
        builder.encode(&header.params, &header.layout, &head.items, &[data], &mut forged);
        assert_eq!(forged == record, key == *own);
        let mut image = self.image.clone();
        image.write(self.op.offset, &forged);
        image
    }
}

/// Seen to fail when all logs have one key.
#[test]
fn r35_each_log_has_a_key_of_its_own() {
    let area = LaneId(2);
    for (len, in_area) in [(512, true), (20 << 10, false)] {
        let newest = Newest::of(len);
        assert_eq!(newest.lane == area, in_area);
        let (_, media) = mem_media(&newest.image);
        let host = read_media(&*media.area, media.log.as_deref()).unwrap().host;
        let (keys, own) = (host.lane_key, host.lane_key.lane(newest.lane));
        let others = (0..=KIND.lanes).map(LaneId).filter(|lane| *lane != newest.lane);
        let not_divided = LogKey { epoch: keys.epoch, nonce: keys.nonce };
        let others = others.map(|lane| keys.lane(lane)).chain([keys.journal(), not_divided]);
        let has =
            |key| Back::from(&newest.forged(&own, key)).bytes("big").starts_with(&bytes(11, len));
        assert!(has(own), "its own key");
        for key in others {
            assert!(!has(key), "{key:?}");
        }
    }
}
