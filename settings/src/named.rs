//! Enumerations whose members have names.

/// Makes an enumeration, and `name()` for the text of a member.
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* pub enum $Type:ident {
        $($(#[$doc:meta])* $Name:ident = $text:literal,)*
    }) => {
        $(#[$about])*
        pub enum $Type { $($(#[$doc])* $Name,)* }

        impl $Type {
            /// How people know it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$Name => $text),* }
            }
        }
    };
}
