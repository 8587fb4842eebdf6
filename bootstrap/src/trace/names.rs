//! What records and counters are about: numbers that ranks write and launchers read.

/// Makes an enumeration whose numbers travel, with a name for people each.
macro_rules! numbered {
    ($(#[$about:meta])* $Type:ident: $repr:ty {
        $($(#[$doc:meta])* $Name:ident = $text:literal;)*
    }) => {
        settings::named! {
            $(#[$about])*
            #[derive(
                Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
            )]
            #[repr($repr)]
            pub enum $Type { $($(#[$doc])* $Name = $text,)* }
        }

        impl $Type {
            /// The one with a number, if there is one.
            #[must_use]
            pub fn of(number: u8) -> Option<Self> {
                Self::ALL.get(usize::from(number)).copied()
            }
        }
    };
}

numbered! {
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

numbered! {
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

numbered! {
    /// Why a call waited, and what else takes time.
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
        /// A packet of a handshake for a send buffer, which an earlier one has.
        Packet = "CONN_STALL_CQ";
        /// A connection that this rank asked for, from then to its end.
        Active = "CONN_TIME_ACTV";
        /// One that the peer asked for.
        Passive = "CONN_TIME_PASV";
        /// One that both asked for at once, and this rank answered.
        Turned = "CONN_TIME_A2P";
        /// From a first packet to its answer.
        ReqToRep = "CONN_REQ2REP";
        /// From a third packet to the last.
        RtuToAck = "CONN_RTU2ACK";
        /// Registering memory outside segments, with what gave way to it.
        Move = "FIREHOSE_MOVE";
    }
}

impl Cause {
    /// Whether the rank lacked something to go on with its own work.
    #[must_use]
    pub const fn is_stall(self) -> bool {
        self.is_wait() && self as u8 >= Self::Room as u8
    }

    /// Whether a call of the program waited.
    #[must_use]
    pub const fn is_wait(self) -> bool {
        self as u8 <= Self::Connection as u8
    }

    /// The letter that selects it.
    #[must_use]
    pub const fn letter(self) -> u8 {
        match self {
            Self::Lock => b'L',
            _ if self.is_wait() => b'S',
            _ => b'C',
        }
    }
}

numbered! {
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
        /// Lists of requests that were posted together; the bytes are the requests.
        PostedList = "POST_SR_LIST";
        /// Puts that a fence was posted behind, by itself.
        PostedSplit = "POST_SR_SPLIT";
        /// Completions of sends that a thread for them took.
        ReapedByThread = "SND_REAP_THR";
        /// First packets that came again too soon to be answered again.
        NoRep = "CONN_NOREP";
        /// Third packets, likewise.
        NoAck = "CONN_NOACK";
        /// Both ranks asked for a connection at once, and this one goes on asking.
        StayedActive = "CONN_AAA";
        /// The same where this one answers.
        BecamePassive = "CONN_AAP";
        /// Connections whose last packet was a message of the program.
        ImpliedAck = "CONN_IMPLIED_ACK";
        /// Transfers from or to memory outside segments that was registered before; their bytes.
        Hit = "FIREHOSE_HIT";
        /// Parts of transfers that could not be registered and were copied.
        Copied = "FIREHOSE_COPY";
        /// Regions outside segments that were registered.
        Pin = "FIREHOSE_PIN";
        /// Those that were registered no longer: the difference of the bytes is registered.
        Unpin = "FIREHOSE_UNPIN";
        /// Regions that gave way to others.
        Evicted = "FIREHOSE_EVICT";
        /// Memory that the program unmapped under the cache.
        Unmapped = "FIREHOSE_UNMAP";
        /// Receive buffers made for requests and replies over the network, and rings that peers write
        /// requests into; their bytes.
        ReceiveBuffer = "RECV_BUFFER";
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

/// Names of the original's list that nothing here can count, and why.
pub const LACKING: [(&str, &str); 4] = [
    ("RDMA_PUT_IN_MOVE", "segments are registered as a whole: no request for that carries data"),
    ("RDMA_PUT_READONLY", "what a put reads is registered to be read, so read-only pages are, too"),
    ("SPARE_REPLY_BBUF", "replies take send buffers of the common list, which GET_BBUF counts"),
    ("ALLOC_SREQ", "requests in flight are rows of a table that is made once"),
];
