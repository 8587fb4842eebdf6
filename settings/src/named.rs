//! Enumerations whose members have names.

/// Makes an enumeration, `name()` for the text of a member, and `ALL` for all of them.
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* $vis:vis enum $Type:ident {
        $($(#[$doc:meta])* $Name:ident = $text:literal,)*
    }) => {
        $(#[$about])*
        $vis enum $Type { $($(#[$doc])* $Name,)* }

        impl $Type {
            /// All, in their order.
            #[allow(dead_code, reason = "not every enumeration is gone through")]
            $vis const ALL: &'static [Self] = &[$(Self::$Name),*];

            /// How people know it.
            #[must_use]
            $vis const fn name(self) -> &'static str {
                match self { $(Self::$Name => $text),* }
            }
        }
    };
}
