//! Stand-in for the transport: one plain connection.

use std::io::{BufReader, BufWriter, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use bytes::Bytes;

use crate::settings::Settings;
use crate::stop::{Hooked, Stop};

pub(crate) type WireError = std::io::Error;

fn read_message(input: &mut impl Read) -> Result<Vec<u8>, WireError> {
    let mut len = [0; 4];
    input.read_exact(&mut len)?;
    let mut message = vec![0; u32::from_le_bytes(len) as usize];
    input.read_exact(&mut message)?;
    Ok(message)
}

#[allow(clippy::cast_possible_truncation)]
fn write_message(output: &mut impl Write, pieces: &[Bytes]) -> Result<(), WireError> {
    let len: usize = pieces.iter().map(Bytes::len).sum();
    output.write_all(&(len as u32).to_le_bytes())?;
    pieces.iter().try_for_each(|piece| output.write_all(piece))
}

#[derive(Debug)]
pub(crate) struct Listener(TcpListener, String);

pub(crate) fn listen(
    address: &str,
    _settings: &Settings,
    _stop: &Stop,
) -> Result<Listener, WireError> {
    let address =
        if address.contains(':') { address.to_owned() } else { format!("{address}:4444") };
    let listener = TcpListener::bind(&address)?;
    Ok(Listener(listener, address))
}

impl Listener {
    pub(crate) fn announcement(&self) -> String {
        format!("{}/xbrs/plain/1", self.1)
    }

    pub(crate) fn accept(self, _limit: Duration, stop: &Stop) -> Result<Offered, WireError> {
        let stream = self.0.accept()?.0;
        let other = stream.try_clone()?;
        let hook = stop.on_stop(move || drop(other.shutdown(std::net::Shutdown::Both)));
        let mut input = BufReader::with_capacity(1 << 20, stream.try_clone()?);
        let offer = read_message(&mut input)?;
        Ok(Offered { offer, incoming: Incoming { input, stream, _hook: hook } })
    }
}

#[derive(Debug)]
pub(crate) struct Offered {
    offer: Vec<u8>,
    incoming: Incoming,
}

impl Offered {
    pub(crate) fn offer(&self) -> &[u8] {
        &self.offer
    }

    pub(crate) fn accept(mut self) -> Result<Incoming, WireError> {
        self.incoming.stream.write_all(&[1])?;
        Ok(self.incoming)
    }

    pub(crate) fn refuse(self, reason: &str) {
        let _ = (&self.incoming.stream).write_all(reason.as_bytes());
    }
}

#[derive(Debug)]
pub(crate) struct Incoming {
    input: BufReader<TcpStream>,
    stream: TcpStream,
    _hook: Hooked,
}

impl Incoming {
    pub(crate) fn next_block(&mut self) -> Result<Option<Bytes>, WireError> {
        let message = read_message(&mut self.input)?;
        Ok((!message.is_empty()).then(|| message.into()))
    }

    pub(crate) fn confirm(mut self) -> Result<(), WireError> {
        self.stream.write_all(&[1])
    }

    pub(crate) fn refuse(self, reason: &str) {
        let _ = (&self.stream).write_all(reason.as_bytes());
    }
}

#[derive(Debug)]
pub(crate) struct Outgoing {
    output: BufWriter<TcpStream>,
    stream: TcpStream,
    _hook: Hooked,
}

pub(crate) fn connect(
    address: &str,
    _remote_auth: Option<&str>,
    offer: &[u8],
    _settings: &Settings,
    stop: &Stop,
) -> Result<Outgoing, WireError> {
    let address = address.split('/').next().unwrap_or_default();
    let stream = TcpStream::connect(address)?;
    let other = stream.try_clone()?;
    let hook = stop.on_stop(move || drop(other.shutdown(std::net::Shutdown::Both)));
    let mut outgoing = Outgoing {
        output: BufWriter::with_capacity(1 << 20, stream.try_clone()?),
        stream,
        _hook: hook,
    };
    write_message(&mut outgoing.output, &[Bytes::copy_from_slice(offer)])?;
    outgoing.output.flush()?;
    outgoing.answer()?;
    Ok(outgoing)
}

impl Outgoing {
    pub(crate) fn send(&mut self, block: Vec<Bytes>) -> Result<(), WireError> {
        write_message(&mut self.output, &block)
    }

    pub(crate) fn finish(mut self) -> Result<(), WireError> {
        write_message(&mut self.output, &[])?;
        self.output.flush()?;
        self.answer()
    }

    fn answer(&mut self) -> Result<(), WireError> {
        let mut first = [0];
        self.stream.read_exact(&mut first)?;
        if first == [1] {
            return Ok(());
        }
        let mut rest = String::new();
        let _ = self.stream.read_to_string(&mut rest);
        Err(std::io::Error::other(format!("the joiner says: {}{rest}", char::from(first[0]))))
    }
}
