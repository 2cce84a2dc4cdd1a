//! The login, from the greeting to the server's consent, as a state machine.
//! (MySQL: "Connection Phase", "Protocol::AuthSwitchRequest", "Protocol::AuthMoreData".)

use crate::auth::{self, Account, CACHING_SHA2, Channel, NATIVE};
use crate::capabilities as can;
use crate::error::{Error, ServerError};
use crate::fields::Fields;
use crate::handshake::Greeting;
use crate::response::{Completion, EOF, ERR, OK};

/// First byte of further data for the plugin.
const MORE: u8 = 0x01;

/// Next step after a packet of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Send this payload, and wait for the next packet.
    Send(Vec<u8>),
    /// Wait for the next packet.
    Wait,
    /// The server accepted the account.
    Done,
}

/// A login under way.
#[derive(Debug)]
pub struct Login<'a> {
    account: &'a Account,
    channel: Channel,
    capabilities: u64,
    plugin: Vec<u8>,
    /// Whether the server has changed the plugin; it may do so once.
    switched: bool,
}

impl<'a> Login<'a> {
    /// Begins a login on a channel that is already private, if it is to be: over TLS, after the TLS
    /// handshake. Returns the payload to send first.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the server's challenge is too short; [`Error::Nul`] if the account's
    /// name or database has a NUL, which the protocol cannot carry.
    pub fn begin(
        greeting: &Greeting,
        account: &'a Account,
        channel: Channel,
    ) -> Result<(Self, Vec<u8>), Error> {
        if account.user.contains(&0) || account.database.contains(&0) {
            return Err(Error::Nul);
        }
        // A server whose default is a plugin we do not have still changes it to that of the account.
        let plugin = match &greeting.plugin[..] {
            CACHING_SHA2 => CACHING_SHA2,
            _ => NATIVE,
        };
        let tls = match channel {
            Channel::Tls | Channel::Unproven => can::TLS,
            Channel::Socket | Channel::Plain => 0,
        };
        let capabilities = greeting.agreed(account) | tls;
        let answer = auth::answer(plugin, &account.password, &greeting.challenge)?;
        let first = greeting.response(account, capabilities, plugin, &answer)?;
        let plugin = plugin.to_vec();
        Ok((Self { account, channel, capabilities, plugin, switched: false }, first))
    }

    /// Returns the capabilities of both sides, for [`Reply`](crate::Reply).
    #[must_use]
    pub fn capabilities(&self) -> u64 {
        self.capabilities
    }

    /// Takes the next packet of the server.
    ///
    /// # Errors
    /// [`Error::Server`] if it refuses the account; [`Error::Plugin`], [`Error::NotPrivate`],
    /// [`Error::Malformed`]. The login has failed then.
    pub fn receive(&mut self, packet: &[u8]) -> Result<Step, Error> {
        let mut fields = Fields::new("login", packet);
        match fields.u8()? {
            OK => Completion::ok(packet, self.capabilities).map(|_| Step::Done),
            ERR => Err(ServerError::parse(packet)?.into()),
            EOF if fields.is_empty() => Err(Error::Plugin("mysql_old_password".to_owned())),
            EOF if !self.switched => {
                self.switched = true;
                self.plugin = fields.until_nul()?.to_vec();
                auth::answer(&self.plugin, &self.account.password, fields.rest()).map(Step::Send)
            }
            MORE => {
                let password = &self.account.password;
                let answer = auth::more(&self.plugin, password, fields.rest(), self.channel)?;
                Ok(answer.map_or(Step::Wait, Step::Send))
            }
            _ => fields.malformed(),
        }
    }
}
