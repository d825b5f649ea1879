//! The form of every message: the numbers of the variants and the order of the fields. Both are
//! part of the protocol's version; numbers are never used again for something else.

mod compound;
mod requests;
mod types;

use crate::{
    Back, Change, Claim, Done, FileProtocol, FromServer, Grant, Kept, Leases, Opening, Proven,
    Returning, ToServer, Told,
};
use siftfs_base::{Error, Result};
use siftfs_codec::{Field, Reader, Writer, fields, messages, variants};
use siftfs_proto::Reply;

messages!(FileProtocol: ToServer, FromServer);

variants!(FileProtocol: ToServer {
    2 => Call { slot, number, credentials, request, change, proofs },
    3 => Taken { notice },
    4 => Bye {},
    5 => Returned {},
    6 => Full {},
    7 => Lent { slot, number, credentials, lease, offset, len, time, blocks },
    8 => Ping { number },
} tuple {
    1 => Open(opening),
});

variants!(FileProtocol: FromServer {
    1 => Opened { volume, slots, bytes, checks, instance, back },
    2 => Refused { reason },
    3 => Answer { slot, number, result, done, proofs },
    4 => Notice { notice, all, told },
    5 => Shares { others },
    6 => Ended { reason, all_answered },
    7 => Owing { slot, number, result, done, proofs },
    8 => Settled { slot, number },
    9 => Durable { order },
    10 => Recall { lease },
    11 => Pong { number },
});

fields!(FileProtocol: Opening { volume, claim, caches, leases, returning });

variants!(FileProtocol: Leases { 1 => None {}, 2 => Held {}, 3 => Lent {} });

fields!(FileProtocol: Returning { client, instance });

variants!(FileProtocol: Back { 1 => New {}, 2 => Same {}, 3 => Again {}, 4 => Clean {}, 5 => Unknown {} });

variants!(FileProtocol: Change {
    1 => Once { place, number },
    2 => Absolute { place, number },
    4 => Reclaim {},
    5 => Loose {},
} tuple {
    3 => Kept(it),
});

fields!(FileProtocol: Kept { instance, order, lsn, inode, place, number, tried });

variants!(FileProtocol: Grant {
    1 => Reference {},
    3 => Directory {},
    4 => Held {},
} tuple {
    2 => Open(access),
});

fields!(FileProtocol: Proven { ino, generation, grant, proof });

fields!(FileProtocol: Done { order, lsn, at });

variants!(FileProtocol: Claim {
    1 => Kernel {},
    2 => Owner {},
    3 => User { uid, gid, rights },
});

fields!(FileProtocol: Told { attributes, sizes, data, names });

impl Field<FileProtocol> for std::result::Result<Box<Reply>, Error> {
    fn put(&self, out: &mut Writer<FileProtocol>) {
        match self {
            Ok(reply) => {
                out.bytes(&[1]);
                reply.put(out);
            }
            Err(error) => {
                out.bytes(&[2]);
                error.put(out);
            }
        }
    }
    fn get(from: &mut Reader<'_, FileProtocol>) -> Result<Self> {
        match from.take()? {
            [1] => Box::get(from).map(Ok),
            [2] => Error::get(from).map(Err),
            [other] => Err(from.bad(format!("an answer of kind {other}"))),
        }
    }
}

#[cfg(test)]
#[path = "forms_tests.rs"]
mod tests;
