//! What records and counters are about: numbers that ranks write and launchers read.

/// Makes an enumeration whose numbers travel, with a name for people each.
macro_rules! named {
    ($(#[$about:meta])* $Type:ident: $repr:ty {
        $($(#[$doc:meta])* $Name:ident = $text:literal;)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr($repr)]
        pub enum $Type { $($(#[$doc])* $Name,)* }

        impl $Type {
            /// All, by number.
            pub const ALL: &'static [Self] = &[$(Self::$Name),*];

            /// How people know it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$Name => $text),* }
            }

            /// The one with a number, if there is one.
            #[must_use]
            pub fn of(number: u8) -> Option<Self> {
                Self::ALL.get(usize::from(number)).copied()
            }
        }
    };
}

named! {
    /// Kind of a record.
    Kind: u8 {
        /// No record.
        Nothing = "nothing";
        /// Messages of one kind that were sent, one after the other.
        Sent = "send";
        /// Handlers that ran, of one kind, one after the other.
        Handled = "handler";
        /// A put was called.
        Put = "put";
        /// A get was called.
        Get = "get";
        /// An atomic operation was called.
        Atomic = "atomic";
        /// A call waited; the detail is its [`Cause`].
        Waited = "wait";
        /// A barrier: from its notify to the end of its wait.
        Barrier = "barrier";
        /// A collective was begun.
        Collective = "collective";
        /// Memory was registered with adapters.
        Registered = "register";
        /// A connection was made.
        Connected = "connect";
        /// The rank began to exit; the peer is the code.
        Exiting = "exit";
        /// Something about the rank: a [`Mark`].
        Marked = "mark";
        /// A text of the program; its bytes follow in records of [`Kind::More`].
        Text = "text";
        /// Bytes of a text.
        More = "more";
    }
}

named! {
    /// A moment in the life of a rank.
    Mark: u8 {
        /// It began to join the job.
        InitBegins = "init begins";
        /// It has joined.
        InitEnds = "init ends";
        /// It has its segment; the bytes are its size.
        Attached = "segment attached";
    }
}

named! {
    /// Why a call waited.
    Cause: u8 {
        /// For an operation or event to complete.
        Event = "WAIT_EVENT";
        /// For the other ranks of a barrier.
        Barrier = "WAIT_BARRIER";
        /// For a collective.
        Collective = "WAIT_COLLECTIVE";
        /// For a condition of the program.
        Condition = "WAIT_CONDITION";
        /// For a lock of the program.
        Lock = "WAIT_LOCK";
        /// For room in a queue in shared memory.
        Room = "SHM_ROOM_STALL";
        /// For a credit of the receiver.
        Credit = "GET_AMREQ_CREDIT_STALL";
        /// For room for the reply to a request.
        ReplyRoom = "GET_AMREQ_BUFFER_STALL";
        /// For a send buffer.
        SendBuffer = "GET_BBUF_STALL";
        /// For a buffer of an atomic operation.
        AtomicBuffer = "GET_RATOMICBUF_STALL";
        /// For a slot of the send queue.
        SendQueue = "POST_SR_STALL_SQ";
        /// The same of a queue pair for requests.
        RequestQueue = "POST_SR_STALL_SQ2";
        /// For a slot of the completion queue.
        CompletionQueue = "POST_SR_STALL_CQ";
        /// For a connection.
        Connection = "CONN_STALL_DESC";
    }
}

impl Cause {
    /// Whether the rank lacked something to go on with its own work.
    #[must_use]
    pub const fn is_stall(self) -> bool {
        self as u8 >= Self::Room as u8
    }
}

named! {
    /// What is counted. Counters of transfers count bytes beside.
    Counter: u8 {
        /// Messages sent, with their payload.
        SentAm = "SEND_AM";
        /// Messages handled, with their payload.
        HandledAm = "RCV_AM";
        /// Puts, wherever they went.
        Put = "PUT";
        /// Gets, wherever from.
        Get = "GET";
        /// Atomic operations.
        Atomic = "ATOMIC";
        /// Barriers.
        Barrier = "BARRIER";
        /// Collectives.
        Collective = "COLLECTIVE";
        /// Puts over the network that travelled in their request.
        PutInline = "RDMA_PUT_INLINE";
        /// Puts over the network that were copied.
        PutBounce = "RDMA_PUT_BOUNCE";
        /// Puts over the network whose source the adapter read.
        PutZeroCopy = "RDMA_PUT_ZEROCP";
        /// Gets over the network that were copied.
        GetBounce = "RDMA_GET_BOUNCE";
        /// Gets over the network that the adapter wrote where they belong.
        GetZeroCopy = "RDMA_GET_ZEROCP";
        /// Messages that were copied because no spare buffer was left.
        NoSpare = "ALLOC_AM_SPARE";
        /// Credits taken for requests.
        Credit = "GET_AMREQ_CREDIT";
        /// Requests posted that name memory; the bytes are their pieces.
        Posted = "POST_SR";
        /// Requests posted with their data in them.
        PostedInline = "POST_INLINE_SR";
        /// Completions of sends.
        Reaped = "SND_REAP";
        /// Completions of receives.
        Received = "RCV_REAP";
        /// Send buffers taken.
        SendBuffer = "GET_BBUF";
        /// The same for atomic operations of the adapter.
        AtomicBuffer = "GET_RATOMICBUF";
        /// First packets of a handshake that were sent again.
        ConnectReq = "CONN_REQ";
        /// Answers to them.
        ConnectRep = "CONN_REP";
        /// Third packets that were sent again.
        ConnectRtu = "CONN_RTU";
        /// Last packets.
        ConnectAck = "CONN_ACK";
        /// Connections made at the start.
        ConnectedStatic = "CONN_STATIC";
        /// Connections made when they were needed.
        ConnectedDynamic = "CONN_DYNAMIC";
        /// Memory registered with adapters.
        Registered = "REGISTER";
    }
}

/// The letters of masks, in the order of their bits.
pub const LETTERS: &str = "GPRSWBLAXIOCDNHU";

impl Kind {
    /// The letter that selects records of this kind.
    #[must_use]
    pub const fn letter(self) -> u8 {
        match self {
            Self::Get => b'G',
            Self::Put => b'P',
            Self::Atomic => b'R',
            Self::Waited => b'S',
            Self::Collective => b'W',
            Self::Barrier => b'B',
            Self::Sent | Self::Handled => b'A',
            Self::Exiting => b'X',
            Self::Registered => b'O',
            Self::Connected => b'C',
            Self::Text | Self::More => b'H',
            Self::Nothing | Self::Marked => b'I',
        }
    }
}

impl Counter {
    /// The letter that selects it.
    #[must_use]
    pub const fn letter(self) -> u8 {
        match self {
            Self::SentAm | Self::HandledAm => b'A',
            Self::Put => b'P',
            Self::Get => b'G',
            Self::Atomic => b'R',
            Self::Barrier => b'B',
            Self::Collective => b'W',
            Self::Registered => b'O',
            _ => b'C',
        }
    }
}
